"""Worlds of several nodes: each a whole service on a machine of its own, over one PostgreSQL and three Kafka brokers.

nodes     machines of nodes and of what they share, and the clients behind a proxy
faults    what goes wrong between machines, and on them
running   one run: a scenario played, and what of it broke a law
"""
