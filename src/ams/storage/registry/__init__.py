"""The registry: projects, users, topics, subscriptions and who is on which access list.

registry          the face: one database, a part for each kind of record
tables            the tables; records has their rows as values; statements are those that both databases take
projects, users   and quotas; memberships and registrations; logins has named tokens, issuers and identities bound there
resources         topics and subscriptions; policies has their access lists, and IAM policies; schemas
parallel          options of parallel subscriptions, and snapshots of where they stood
push              subscriptions to deliver, and secrets of signatures
counts            tallies, days and figures for metrics; history has measurements of the last day
keys              keys that the installation signs with, and changing the key that encrypts secrets
idempotency       idempotency keys for the log on Kafka
export            all of it as lines of an export, and back
"""
