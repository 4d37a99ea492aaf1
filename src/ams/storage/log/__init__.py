"""The ordered log of a topic: the protocol (`base`) and its engines."""
