"""The gRPC side of push: the wire of `PushService`, and the service as a client of a push server (contract 2 and 3)."""
