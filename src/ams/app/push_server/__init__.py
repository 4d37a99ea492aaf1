"""`ams push`: the push server as a program of its own, for this service or a reference one (push contract 2 to 8).

- settings: flags, environment, TOML, or the reference's JSON
- service: the gRPC server: port, access list, methods
- targets: push targets, parsed from the wire
- upstream: messages, leases and acknowledgements over the HTTP API; polling and long polls
- selection: selects the subscriptions to deliver: by leases, the worker's profile, or activation
- program: all of it, from a start to an orderly stop, and its metrics

Needs the extra `push`.
"""
