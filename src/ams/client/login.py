"""Logging in with a certificate: from a certificate and its key to the token of the user it stands for.

The certificate service is asked once, by its `:authx509` (authn contract 8); what it answers is a token as any other.
"""

import httpx

from ams.client.endpoint import host
from ams.client.wire import authn
from ams.client.wire.call import Call

PORT = 8443
"""Of the certificate service, unless something else is said (clients.md A2.2)."""
AMS = "ams"
"""The service type that AMS has by custom; the official library knows no other name."""


def beside(endpoint: str) -> str:
    """Return where the certificate service of an AMS is by custom: on the same host, on a port of its own."""
    name = host(endpoint)
    return str(httpx.URL(scheme="https", host=name, port=PORT))


def asking(endpoint: str, service_type: str, service_host: str | None) -> Call[authn.Token]:
    """Return the call that logs in to the AMS at `endpoint`; its host is called as there unless something else is said.

    Raises `InvalidInput` for what cannot be an endpoint or a name.
    """
    return authn.authx509(service_type, service_host or host(endpoint))
