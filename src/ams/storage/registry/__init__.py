"""The registry: projects, users, topics, subscriptions, access lists and related records.

- registry: the interface: one database, with a part for each kind of record
- tables, records, statements: tables; rows as values; statements for both databases
- projects, users: projects and quotas; users, memberships and registrations
- logins: named tokens, issuers and bindings to identities
- resources, policies, schemas: topics and subscriptions; access lists and IAM policies; schemas
- snapshots: snapshots of parallel subscriptions
- push: subscriptions to deliver, and signing secrets
- counts, history: counters and metrics; measurements of the last day
- signing_keys: signing keys, and rotation of the encryption key
- idempotency: idempotency keys for the log on Kafka
- export: export and import of all records
"""
