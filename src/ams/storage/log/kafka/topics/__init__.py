"""Topics as the brokers have them: which there are, how they are made, and what they are held to."""
