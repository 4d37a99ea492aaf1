"""Every action, request and answer, once: the routes and the client use the same table and the same structs.

actions          the table of actions of the HTTP API
base             what all requests and answers have in common
messages         messages: published, pulled, acknowledged, and read by their ids
projects         projects, topics, access lists, schemas and dry runs
subscriptions    subscriptions, where they stand, options of parallel ones, and snapshots
users            users, members, registrations, named tokens, OpenID Connect issuers, and bindings to identities at them
push             push configurations, how deliveries go, and the leases of processes that deliver
service          status, diagnoses, metrics, usage, and events of the audit log
authn            the certificate service

Only the structs and the table: no code that handles requests or makes responses.
"""
