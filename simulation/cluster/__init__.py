"""Worlds of several nodes: each a whole service on a machine of its own, over one PostgreSQL and three Kafka brokers.

nodes     machines of nodes, PostgreSQL and Kafka, and the clients behind a proxy
faults    faults of machines and of the network between them
running   one run: plays a scenario and returns the violations
"""
