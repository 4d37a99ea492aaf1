"""The URL by which receivers of deliveries in Google's form know the service."""

import socket

import pytest

from ams.app.wiring.push import issuer_of
from ams.core.settings import Settings

TLS = {"cert": "chain.pem", "key": "key.pem"}


@pytest.mark.parametrize(
    ("settings", "issuer"),
    [({"proxy_hostname": "ams.example", "port": 8080}, "https://ams.example"),
     ({"host": "127.0.0.1", "port": 8080}, "http://127.0.0.1:8080"),
     ({"host": "::1", "port": 80}, "http://[::1]"),
     ({"host": "ams.example", "port": 8443, **TLS}, "https://ams.example:8443"),
     ({"host": "ams.example", "port": 443, **TLS}, "https://ams.example"),
     ({"host": "127.0.0.1", "port": 8443, "tls_self_signed": True}, "https://localhost:8443"),
     ({"host": "0.0.0.0", "port": 443, **TLS}, f"https://{socket.gethostname()}")],
)  # fmt: skip
def test_the_issuer_is_where_the_service_is_found(settings: dict[str, object], issuer: str) -> None:
    assert issuer_of(Settings(**settings)) == issuer  # type: ignore[arg-type]
