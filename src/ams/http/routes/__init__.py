"""The routes of the API behind the hot routes; `ams.app.wiring.assembly` joins them.

projects         projects and their members
users            users, their named tokens, and registrations
issuers          OpenID Connect issuers, and bindings of users to identities at them
topics           topics, but for publishing, and how long messages are kept
subscriptions    subscriptions, but for pull and acknowledge, and where they stand
parallel         options of parallel subscriptions, read and shown
snapshots        snapshots of where they stood
schemas          schemas, with rules for attributes and dry runs
reading          ranges of topics, as JSON lines or as an Arrow IPC stream
watching         live views of a project, as server-sent events
push             push configurations, how deliveries go, and dead letters
push_lease       leases of push delivery, for processes that deliver
service          status, version, metrics, both doctors, and the audit log
answers          how answers are written, long lists piece by piece
"""
