"""Values and rules for all packages: names, errors, clock, settings, messages, and others.

settings               the typed table of a program's settings, from flags, environment, file and defaults
settings_import        settings of the reference implementation, read into ours
names                  names of resources and their rules, and references to resources
errors                 the errors of all packages, as one tree
messages               the message: attributes, base64 text, and its JSON made once
runs, offsets          messages as a log hands them on; sets of offsets
push_config            where a subscription's messages are delivered to, and the rules by which that changes
parallel_options       options of a parallel subscription, and their limits
ack_ids                ack ids of parallel subscriptions, and the ack deadline with its limits
filters                which messages are delivered, by their attributes
issuer                 an issuer whose tokens are accepted, and the file that lists issuers
versions               versions of resources, and changes that are meant for one of them
public_keys, rights    of named tokens: their public keys; what they are good for
distinguished_names    names of certificates, and the form they are compared in
urls                   credentials in URLs, and addresses of this machine
clock                  wall time and monotonic time, replaceable in tests
cache                  a bounded cache: the entry that was not used for longest goes first
backoff                how long to wait between tries
quotas                 how much one project may take: names, defaults, own values, and the check
fair_share             a share of a capacity for each holder: as much as it leaves free
rate                   how many are allowed in a time, and failed logins by address
coalescing             one request to a broker or a database for many callers; single flight
observing              logs and metrics, configured once; and which request is being answered
supervisor             threads and tasks a process cannot do without; background work in rounds
yaml_tree              a YAML file as a tree in which each value has its line number
"""
