"""The handlers of all actions but the hot ones, named as these; `ams.app.wiring.assembly` puts them together.

projects         projects, their members and quotas; topics, but for publishing, and how long messages are kept
users            users, their named tokens, and registrations
issuers          OpenID Connect issuers, and bindings of users to identities at them
subscriptions    subscriptions, but for pull and acknowledge, and where they stand
parallel         options of parallel subscriptions, read and shown, and snapshots
schemas          schemas, with rules for attributes and dry runs
reading          ranges of topics, as JSON lines or as an Arrow IPC stream; history and live views of a project
push             push configurations, how deliveries go, and the requests of processes that deliver
service          status, version, metrics, both doctors, and the audit log
"""
