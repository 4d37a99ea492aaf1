"""Fetching: what is taken from others, and from where."""

import ipaddress

import pytest

from ams.outgoing.fetching import Fetcher, NotFetched, TooMuch
from ams.outgoing.guard import Guard
from tests.support.publishing import Publishing

ALLOWED = Guard([ipaddress.ip_network("127.0.0.0/8")])


async def test_a_file_is_fetched_and_counted(publishing: Publishing) -> None:
    fetcher = Fetcher(ALLOWED)

    assert await fetcher.get(publishing.puts("/a?b=c", b"x" * 300_000)) == b"x" * 300_000
    assert await fetcher.post(publishing.answers("/p", lambda body: body * 2), b"abc", "text/plain") == b"abcabc"
    assert (fetcher.fetches, fetcher.failures) == (2, 0)


async def test_a_file_that_is_too_long_is_not_taken(publishing: Publishing) -> None:
    with pytest.raises(TooMuch):
        await Fetcher(ALLOWED, most_bytes=1000).get(publishing.puts("/long", bytes(1001)))


@pytest.mark.parametrize(
    "url",
    [
        "ldap://127.0.0.1/", "file:///etc/passwd", "http://", "http://127.0.0.1:1/", "http://127.0.0.1:99999/",
        "http://[::1]/", "http://10.0.0.1/", "http://a b/", "http://\u00e9\u00e9..x/", "http://127.0.0.1:{port}/missing",
        "http://127.0.0.1:{port}/a b\r\nX: y", "https://127.0.0.1:{port}/", "http://" + "a" * 300 + "/",
    ],
)  # fmt: skip
async def test_what_cannot_be_fetched_is_one_error(publishing: Publishing, url: str) -> None:
    fetcher = Fetcher(ALLOWED)

    with pytest.raises(NotFetched):
        await fetcher.get(url.replace("{port}", str(publishing.port)))
    assert fetcher.failures == 1


async def test_redirects_are_not_followed(publishing: Publishing) -> None:
    publishing.puts("/there", b"data")
    url = publishing.puts("/here", publishing.url("/there").encode())
    publishing.statuses["/here"] = 302

    with pytest.raises(NotFetched, match="the answer was 302"):
        await Fetcher(ALLOWED).get(url)
    assert not publishing.asked["/there"]
