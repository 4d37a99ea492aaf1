"""Faults of the cluster shape: nodes behind haproxy, brokers, PostgreSQL with standbys, and something of it down.

`python -m tests.faults.cluster.campaign` (or `make faults-cluster`) breaks one thing after another under load.
"""
