"""Where a request's `Peer` is: said by the connection, changed by proxies that are believed, asked by the routes."""

PEER = "authn.peer"
"""Key of the ASGI scope."""
