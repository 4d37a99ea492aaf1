"""Coordination of processes that share a database, by leases.

- leases: rules of leases: renewal, expiry, clocks, equal shares; leases in memory
- lease_table: leases in a database table, for push delivery and parallel subscriptions
- ownership: the owner node of each parallel subscription, and forwarding of requests to it
"""
