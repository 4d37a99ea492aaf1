"""Faults of the cluster shape: three nodes behind haproxy, three brokers, PostgreSQL with standbys, and one of them down.

`python -m tests.faults.cluster.campaign` (or `make faults-cluster`) breaks one thing after another under load.
"""
