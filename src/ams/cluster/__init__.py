"""The cluster: what processes that share a database agree on. In all of it leases follow one law (`leases`).

leases        the law: renewed how often, lost when, by whose clock; equal shares; leases in memory
lease_table   leases over one table: who holds which subscription, for push delivery and for parallel subscriptions
ownership     which node works on a parallel subscription, as one node knows it, and how that node is asked
"""
