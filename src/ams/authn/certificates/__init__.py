"""Certificates of clients: whether one is to be believed now, and whom it names (contract 9 and 10)."""
