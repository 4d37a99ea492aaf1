"""The real parts of the cluster shape on one machine: Kafka, PostgreSQL, haproxy, nodes, and links that can be cut.

Everything listens on loopback, on free ports, and is stopped by process id; nothing outlives the process that started
it. Used by tests, benches, `make kafka`, `make cluster` and `make cluster-demo`; no part of the product.
"""
