"""Small models of PostgreSQL and Kafka, which nodes share. Each passes the contract suites of the real one.

postgresql_text      translates AMS's statements for PostgreSQL to SQLite
postgresql           a server: databases, sessions, transactions, locks, notifications
postgresql_driver    the connections of psycopg that AMS uses, to such a server; directly, for tests
postgresql_world     the same over the network of a world
kafka                brokers: topics, produce, fetch, offsets, settings, leaders
kafka_client         aiokafka's connections to them; directly, for tests
kafka_world          the same over the network of a world
"""
