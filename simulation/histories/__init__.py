"""Clients that work at random, a history of what they tried, and laws over it: for campaigns and simulated worlds."""
