"""Proxies of the environment: which hosts are reached through them, and which are not."""

import pytest

from ams.client import Client
from ams.client.errors import Unusable
from ams.client.proxies import proxy_to

PROXY = "http://proxy.example:3128"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        for each in (name, name.upper()):
            monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", PROXY)


@pytest.mark.parametrize(
    ("excluded", "url", "is_direct"),
    [
        ("", "https://ams.example", False),
        ("*", "https://ams.example", True),
        ("ams.example", "https://ams.example", True),
        ("AMS.example", "https://ams.example:8080", True),
        (".example", "https://ams.example", True),
        ("*.example", "https://ams.example", True),
        ("example", "https://ams.example", True),
        ("s.example", "https://ams.example", False),
        ("ams.example:443", "https://ams.example", True),
        ("ams.example:8080", "https://ams.example", False),
        (" other.example , ams.example ", "https://ams.example", True),
        ("10.0.0.0/8", "https://10.1.2.3", True),
        ("10.0.0.0/8", "https://11.1.2.3", False),
        ("10.1.2.3", "https://10.1.2.3", True),
        ("10.1.2.3:443", "https://10.1.2.3", True),
        ("2001:db8::/32", "https://[2001:db8::1]", True),
        ("2001:db8::/32", "https://[2001:db9::1]", False),
        ("fe80::/10", "https://ams.example", False),
        ("2001:db8::1", "https://[2001:db8::1]:8080", True),
        ("[2001:db8::1]", "https://[2001:db8::1]", True),
        ("[2001:db8::1]:443", "https://[2001:db8::1]", True),
        ("[2001:db8::1]:8080", "https://[2001:db8::1]", False),
        ("[2001:db8::]/32", "https://[2001:db8::1]", True),
        ("2001:DB8:0::1", "https://[2001:db8::1]", True),
        ("::1/128,[::1]:x,:,[,/,10.0.0.0/99", "https://ams.example", False),
        ("", "https://localhost:8080", True),
        ("", "https://127.0.0.1", True),
        ("", "https://[::1]:8080", True),
        ("", "http://ams.example", True),
    ],
)
def test_hosts_without_a_proxy(monkeypatch: pytest.MonkeyPatch, excluded: str, url: str, is_direct: bool) -> None:
    monkeypatch.setenv("NO_PROXY", excluded)

    assert proxy_to(url) == (None if is_direct else PROXY)
    Client(url, "token").close()


@pytest.mark.parametrize(
    ("variable", "value", "proxy"),
    [
        ("HTTPS_PROXY", "proxy.example:3128", PROXY),
        ("https_proxy", "http://user:s3cret@proxy.example", "http://user:s3cret@proxy.example"),
        ("ALL_PROXY", "http://all.example", PROXY),
    ],
)
def test_a_proxy_is_in_its_variable(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, proxy: str) -> None:
    monkeypatch.setenv(variable, value)

    assert proxy_to("https://ams.example") == proxy


@pytest.mark.parametrize(
    "value", ["::1", "http://[::1", "ftp://x", "http://user:s3cret@", "http://x:y", "socks5://x:1"]
)
def test_what_cannot_be_a_proxy_is_one_error_that_does_not_show_it(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)

    with pytest.raises(Unusable, match=r"^the proxy for https in the environment is no URL http://HOST:PORT$"):
        Client("https://ams.example", "token")
