"""Requests to others: each of their headers goes out once, seen in the bytes that were sent."""

from collections import Counter
from collections.abc import Awaitable, Callable

import httpcore
import pytest

from ams.authn.certificates import ocsp
from ams.core.push_config import MATTERMOST
from ams.outgoing.client import HttpClient, authority, new_request
from ams.push.delivery import Deliveries, new_secret
from ams.push.endpoints import EndpointCheck
from ams.push.sender import HttpSender
from ams.push.upstream import Target
from tests.outgoing.conftest import LOOPBACK, trust
from tests.push.keepers import pulled, target
from tests.support.receiver import Receiver, answers

HASH = "ab" * 32


async def delivered(other: Receiver, target: Target) -> None:
    deliveries = Deliveries(target)
    delivery = deliveries.delivery([pulled(1)], attempt=1, now=1)
    sender = HttpSender(LOOPBACK, trust(other.ca))
    await sender.send(deliveries.url, delivery.headers, delivery.body, seconds=60)
    await sender.close()


async def a_signed_list(other: Receiver, url: str) -> None:
    secrets = [new_secret(), new_secret()]
    await delivered(other, target(endpoint=url, max_messages=5, secrets=secrets, header_value="a value"))


async def a_post_to_mattermost(other: Receiver, url: str) -> None:
    await delivered(other, target(type=MATTERMOST, mattermost_url=url, header_value="a value"))


async def an_ownership_check(other: Receiver, _: str) -> None:
    other.behaviour = answers(HASH)
    await EndpointCheck(LOOPBACK, trust(other.ca)).check("localhost", other.port, HASH)


async def a_file(other: Receiver, url: str) -> None:
    await HttpClient(LOOPBACK, tls=trust(other.ca)).get(url)


async def a_question_about_a_certificate(other: Receiver, url: str) -> None:
    await HttpClient(LOOPBACK, tls=trust(other.ca)).post(url, b"question", ocsp._TYPE)


@pytest.mark.parametrize(
    "kind", [a_signed_list, a_post_to_mattermost, an_ownership_check, a_file, a_question_about_a_certificate]
)
async def test_each_header_goes_out_once(other: Receiver, kind: Callable[[Receiver, str], Awaitable[None]]) -> None:
    other.heads.clear()
    other.behaviour = answers("ok")

    await kind(other, f"https://localhost:{other.port}/path?query")

    assert other.heads
    for head in other.heads:
        first, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        names = Counter(line.partition(b":")[0].lower() for line in lines)
        assert set(names.values()) == {1}, f"{first!r} has {names}"
        assert {b"host", b"user-agent"} <= set(names)
        assert (b"content-length" in names) is first.startswith(b"POST ")


URL = httpcore.URL(scheme=b"https", host=b"a.example", port=8443, target=b"/")


def test_what_every_request_has_cannot_be_sent_again_in_other_letters() -> None:
    again = [(each, b"other") for each in (b"host", b"content-Length", b"connection", b"X-A", b"x-a")]

    made = new_request("POST", URL, [(b"x-A", b"1"), *again], b"body", closes=True)

    assert [name for name, _ in made.headers] == [b"Host", b"User-Agent", b"Content-Length", b"Connection", b"x-A"]
    assert b"other" not in dict(made.headers).values()


def test_a_request_may_say_by_whom_it_is_and_says_it_once() -> None:
    made = new_request("GET", URL, [(b"USER-AGENT", b"one"), (b"user-agent", b"two")], b"")

    assert [value for name, value in made.headers if name.lower() == b"user-agent"] == [b"one"]


def test_a_post_without_a_body_says_so() -> None:
    assert (b"Content-Length", b"0") in new_request("POST", URL, [], b"").headers
    assert b"Content-Length" not in dict(new_request("GET", URL, [], b"").headers)


@pytest.mark.parametrize(
    ("scheme", "host", "port", "shown"),
    [(b"https", b"a.example", 443, b"a.example"), (b"https", b"a.example", 80, b"a.example:80"),
     (b"http", b"a.example", 80, b"a.example"), (b"https", b"::1", 443, b"[::1]"),
     (b"https", b"::1", 8443, b"[::1]:8443")],
)  # fmt: skip
def test_the_host_header_names_only_another_port(scheme: bytes, host: bytes, port: int, shown: bytes) -> None:
    assert authority(scheme, host, port) == shown
