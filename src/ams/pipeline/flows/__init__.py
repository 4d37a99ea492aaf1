"""What a definition comes to: messages through steps into a sink (`flow`), as a run does it."""
