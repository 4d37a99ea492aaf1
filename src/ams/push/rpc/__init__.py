"""The gRPC side of push: the wire of `PushService`, and the service as a client of a push server (push contract 2, 3).

push_service_pb2  messages as `push_service.proto` says them; written by `make proto`
wire              our values as those messages, the methods, and the connection with its TLS
client            asks a push server, words its answers, and keeps what it delivers as the registry wants it

Needs the extra `push`; the service imports it only when a push server is set.
"""

import os

# The library writes lines of its own to stderr for every handshake that fails; ours say what matters.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
