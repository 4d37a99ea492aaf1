"""Leasing: who delivers what, for all processes that deliver, and how it goes."""
