"""`ams push`: the push server as a program of its own, for this service or a reference one (push contract 2 to 8).

settings         its settings: flags, environment, TOML, or the reference's JSON
service          the gRPC server: port, who may ask, methods
targets          targets of deliveries, read from the wire
upstream         messages and acknowledgements over the HTTP API; when to look for messages
hand_outs        messages of parallel subscriptions, leased over the HTTP API
following        what this process delivers: by leases, by the worker's profile, or as it is activated; its condition
program          all of it, from a start to an orderly stop, and its figures for metrics

Needs the extra `push`.
"""
