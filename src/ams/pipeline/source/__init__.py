"""Reads topics into Spark: what is wanted, which offsets there are, and the messages of a range."""
