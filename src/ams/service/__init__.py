"""The use cases of the service, without HTTP and without SQL.

publishing            stores a request of messages at the end of its topic, all or none
delivery              pull and acknowledge
subscription_offsets  offsets of a subscription, seek, and snapshots
ranges                ranges of a topic, for tools that keep their own offsets
retention             retention times, messages lost by retention, consumer lag
stored_bytes          bytes of each project, and their quota
tallies               tallies of topics, projects, days and subscriptions
projects              projects, members, quotas, and cleanup after a crash
users                 users, registrations, named tokens, the first administrator
issuers               OpenID Connect issuers, and bindings of identities
topics                topics, and their access lists
subscriptions         subscriptions, their access lists and expiry
schemas               schemas, and validation without publishing
validators            compiled schemas, and checks that do not block other requests
parallel/             leases, single acknowledgements and retries of parallel subscriptions
dead_letters          stores messages that failed too often
push/                 push configurations, and their assignment to workers
metrics               metrics of the node, projects, topics and subscriptions
history, live_views   the last day of a project, and live views
doctor                diagnosis of a subscription
service_doctor        status, version and diagnosis of the service
leftovers             work of a change that another engine could not complete
lookup                finds resources by name, or raises the error
"""
