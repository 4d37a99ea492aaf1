"""The ordered log of a topic: the promise (`base`) and its keepers."""
