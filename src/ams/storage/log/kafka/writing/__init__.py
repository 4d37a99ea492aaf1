"""Writing: requests in whole batches, each stored once."""
