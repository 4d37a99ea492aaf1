"""The handlers of all actions except the hot ones, named after them; `ams.app.wiring.assembly` assembles them.

- projects: projects, their members and quotas; topics, except publishing; retention
- users: users, their named tokens, registrations, OpenID Connect issuers, and bindings of users to identities
- subscriptions: subscriptions, except pull and acknowledge, their offsets, options of parallel ones, and snapshots
- schemas: schemas, with rules for attributes and dry runs
- reading: ranges of topics, as JSON lines or as an Arrow IPC stream; history and live views of a project
- push: push configurations, delivery states, and requests of processes that deliver
- service: status, version, metrics, both doctors, and the audit log
"""
