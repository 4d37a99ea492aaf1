"""Dead letters: messages that endpoints refuse are put aside into a topic, so that the others go on."""
