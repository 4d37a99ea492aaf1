"""What exists: projects, users, topics, subscriptions and who is on which access list.

registry          the face: one database, a part for each kind of record; rotation changes its key
tables            the tables; records has what is in them as values; statements what both databases take
projects, users   and memberships and registrations; logins has named tokens, issuers and identities bound there
resources         topics, subscriptions, schemas and access lists
parallel          options of parallel subscriptions, and snapshots of where they stood
push              what is to be delivered, secrets of signatures, and leases
parallel, owners  snapshots of parallel subscriptions, and which node works on which
counts            tallies, days and figures for metrics
idempotency       idempotency keys for the log on Kafka
export            all of it as lines of an export, and back
"""
