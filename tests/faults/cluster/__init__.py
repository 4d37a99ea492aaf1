"""Faults of a cluster: nodes behind haproxy, brokers, and PostgreSQL with standbys, with one part down.

`python -m tests.faults.cluster.campaign` (or `make faults-cluster`) breaks one part after another under load.
"""
