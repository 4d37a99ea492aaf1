"""Values and rules for all packages: names, errors, clock, settings, messages, and others.

- settings: the typed table of a program's settings
- settings_import: imports settings of the reference implementation
- names: names, identities and references of resources, and their rules
- errors: the errors of all packages, as one tree
- messages, runs: messages with their JSON, and messages as a log returns them
- offsets: sets of offsets as bitmaps
- push_config: push configurations, and the rules by which they change
- parallel_options, ack_ids, filters: options, ack ids and filters of parallel subscriptions
- issuer: issuers whose tokens are accepted, and the file that lists them
- versions: versions of resources (ETags), and preconditions
- public_keys, rights: public keys and rights of named tokens
- distinguished_names: names of certificates, and their normal form
- iam: bindings of IAM policies
- urls: credentials in URLs, and loopback addresses
- clock, retention_clock: wall time and monotonic time, replaceable in tests; time for retention
- cache: bounded LRU caches, with and without expiry
- backoff: pauses between retries
- quotas, fair_share, rate: quotas of a project, shares of a capacity, rate limits
- coalescing: one request to a broker or a database for many callers; single flight
- telemetry: logs and metrics, and the id of the current request
- supervisor: vital threads and tasks, and periodic background work
- yaml_tree: a YAML file as a tree in which each value has its line number
"""
