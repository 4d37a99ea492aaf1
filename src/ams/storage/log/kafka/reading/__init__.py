"""Reading: messages from any offset, the newest from memory, and waiting for more."""
