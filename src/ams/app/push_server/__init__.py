"""`ams push`: the push server as a program of its own, for this service or a reference one (push contract 2 to 8).

settings, json_config   what can be set, by flags, environment, TOML, or the reference's JSON
access, condition       who may ask, and whether there is an answer
service, health         the gRPC methods
targets                 what is to be delivered, read from the wire
upstream, waiting       messages and acknowledgements over the HTTP API; when to look for messages
following               what this process delivers: by leases, by the worker's profile, or as it is told
program                 all of it, from a start to an orderly stop

Needs the extra `push`.
"""
