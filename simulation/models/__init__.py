"""Models of what several nodes share, small enough to be read; each keeps the contract suites that the real one keeps.

postgresql_text      AMS's statements for PostgreSQL as SQLite runs them
postgresql           a server: databases, sessions, transactions, locks, notifications
postgresql_driver    the connections of psycopg that AMS uses, to such a server; directly, for tests
postgresql_world     the same over the network of a world
kafka                brokers: topics, produce, fetch, offsets, settings, leaders
kafka_client         aiokafka's connections to them; directly, for tests
kafka_world          the same over the network of a world
"""
