"""The gRPC side of push: the wire of `PushService`, and the service as a client of a push server.

Source: push contract 2 and 3.

push_service_pb2  messages as `push_service.proto` says them; written by `make proto`
wire              our values as those messages, and the paths of the methods
channel           the connection to a push server: TLS and whom it trusts
client            what the service asks a push server, and how it words the answers
driving           keeps what a push server delivers as the registry wants it

Needs the extra `push`; the service imports it only when a push server is set.
"""

import os

# The library writes lines of its own to stderr for every handshake that fails; ours say what matters.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
