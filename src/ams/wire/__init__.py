"""Every request and answer of both services, once: the routes and the client use the same structs.

base             what all requests and answers have in common
messages         messages: published, pulled, acknowledged, and read by their ids
projects         projects and topics, and access lists
subscriptions    subscriptions, and where they stand
parallel         options of parallel subscriptions, and snapshots
schemas          schemas, and dry runs
users            users, members of projects, and registrations
identities       named tokens, OpenID Connect issuers, and bindings to identities at them
push             push configurations, how deliveries go, and the leases of processes that deliver
service          status, diagnoses, metrics, usage, and events of the audit log
authn            the certificate service

Only the structs: no code that handles requests or makes responses.
"""
