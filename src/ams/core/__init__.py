"""What everything may use: names, errors, clock, settings, messages, and other values with their rules."""
