"""Requests to issuers: the addresses of their keys (discovery), and whether a token is active (introspection)."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ams.core.errors import TokenRefused
from ams.core.issuer import Issuer
from ams.http.tls import self_signed
from ams.identity.issuers import (
    DESCRIPTION_TTL_MS,
    LOG_INTERVAL_MS,
    MAX_CONCURRENT_REQUESTS,
    Discovery,
    Introspection,
    IssuerFailed,
    issuer_client,
    read_object,
)
from ams.outgoing.address_guard import trust
from ams.outgoing.client import HttpClient
from demo.issuer import DISCOVERY, INTROSPECT, ExampleIssuer, IssuerResponse
from tests.identity.conftest import LOOPBACK
from tests.support.clock import ManualClock


def set_discovery(example: ExampleIssuer, **said: object) -> None:
    described = {"issuer": example.url, "jwks_uri": f"{example.url}/jwks", **said}
    described = {name: value for name, value in described.items() if value is not ...}
    example.instead[DISCOVERY] = IssuerResponse(200, json.dumps(described).encode())


async def test_a_description_is_asked_for_again_after_an_hour_when_it_was_forgotten_and_after_each_failure(
    discovery: Discovery, example: ExampleIssuer, issuer: Issuer, clock: ManualClock
) -> None:
    example.instead[DISCOVERY] = IssuerResponse(404, b"{}")
    with pytest.raises(IssuerFailed, match="its description cannot be had: the answer was 404"):
        await discovery.url(issuer, "jwks_uri")
    del example.instead[DISCOVERY]
    assert await discovery.url(issuer, "introspection_endpoint") == f"{example.url}/introspect"
    set_discovery(example, jwks_uri=f"{example.url}/moved")
    clock.advance(DESCRIPTION_TTL_MS - 1)
    assert await discovery.url(issuer, "jwks_uri") == f"{example.url}/jwks"
    clock.advance(1)
    assert await discovery.url(issuer, "jwks_uri") == f"{example.url}/moved"
    with pytest.raises(IssuerFailed, match="its description has no introspection_endpoint"):
        await discovery.url(issuer, "introspection_endpoint")

    discovery.forget(issuer)
    await discovery.url(issuer, "jwks_uri")

    assert example.requests[DISCOVERY] == 4


async def test_what_is_set_needs_no_description(discovery: Discovery, example: ExampleIssuer, issuer: Issuer) -> None:
    known = replace(issuer, jwks_url="https://keys.example.org/", introspection_url="https://example.org/ask")
    assert await discovery.url(known, "jwks_uri") == "https://keys.example.org/"
    assert await discovery.url(known, "introspection_endpoint") == "https://example.org/ask"
    assert not example.requests


async def test_the_path_comes_after_the_url(discovery: Discovery, example: ExampleIssuer, issuer: Issuer) -> None:
    for url in (f"{example.url}/realms/a", f"{example.url}/realms/b/"):
        path = url.removeprefix(example.url).rstrip("/") + DISCOVERY
        example.instead[path] = IssuerResponse(
            200, json.dumps({"issuer": url, "jwks_uri": "http://example.org/k"}).encode()
        )

        assert await discovery.url(replace(issuer, url=url), "jwks_uri") == "http://example.org/k"


@pytest.mark.parametrize(("said", "reason"), [
    ({"issuer": "http://127.0.0.1"}, "its description is of another issuer: http://127.0.0.1"),
    ({"issuer": "a\r\nb\x1b\u202ec"}, r"its description is of another issuer: a\?\?b\?\?c"),
    ({"issuer": None}, "its description is of another issuer"),
    ({"issuer": ...}, "its description is of another issuer: None"),
    ({"jwks_uri": None}, "a jwks_uri that is no http or https URL"),
    ({"jwks_uri": "file:///etc/passwd"}, "a jwks_uri that is no http or https URL"),
    ({"jwks_uri": "https://[::1/"}, "a jwks_uri that is no http or https URL"),
    ({"jwks_uri": ""}, "its description has no jwks_uri"),
    ({"jwks_uri": "https://user:s3cret@a.example/"}, "a jwks_uri that is no http or https URL without credentials"),
    ({"introspection_endpoint": 5}, "a introspection_endpoint that is no http or https URL"),
    (IssuerResponse(302, b"", {"Location": "/jwks"}), "the answer was 302"),
    (IssuerResponse(200, b"{"), "its description is no JSON object"),
    (IssuerResponse(200, b" " * (1024 * 1024 + 1)), "it has more than 1048576 bytes"),
])  # fmt: skip
async def test_a_description_that_cannot_be_is_not_believed(
    discovery: Discovery, example: ExampleIssuer, issuer: Issuer, said: dict[str, object] | IssuerResponse, reason: str
) -> None:
    if isinstance(said, IssuerResponse):
        example.instead[DISCOVERY] = said
    else:
        set_discovery(example, **said)
    with pytest.raises(IssuerFailed, match=reason):
        await discovery.url(issuer, "jwks_uri")


async def test_an_issuer_is_asked_over_trusted_https_alone(clock: ManualClock, issuer: Issuer, tmp_path: Path) -> None:
    ca, chain, key = self_signed(str(tmp_path))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(chain, key)
    with ExampleIssuer(tls=tls) as example:
        known = replace(issuer, url=example.url)

        trusting = Discovery(issuer_client(LOOPBACK, trust(ca, "issuers_ca_file")), clock)
        assert await trusting.url(known, "jwks_uri") == f"{example.url}/jwks"
        with pytest.raises(IssuerFailed, match="certificate verify failed"):
            await Discovery(issuer_client(LOOPBACK), clock).url(known, "jwks_uri")

        set_discovery(example, jwks_uri="http://example.org/jwks")
        trusting.forget(known)
        with pytest.raises(IssuerFailed, match="a jwks_uri that is not https, as it is itself"):
            await trusting.url(known, "jwks_uri")


@pytest.mark.parametrize("data", [
    b"", b"<html>", b"[]", b"null", b'"{}"', b"\xff\xfe", b'{"a":' + b"[" * 50_000, b'{"a":NaN}', b'{"a":"\\ud800"',
    b"{}{}",
])  # fmt: skip
def test_an_answer_is_a_json_object_or_one_error(data: bytes) -> None:
    assert read_object(b'{"a": [1, null], "b": {}}', "its answer") == {"a": [1, None], "b": {}}
    with pytest.raises(IssuerFailed, match="its answer is no JSON object"):
        read_object(data, "its answer")


@pytest.fixture
async def introspection(client: HttpClient, discovery: Discovery, clock: ManualClock) -> AsyncIterator[Introspection]:
    introspection = Introspection(client, discovery, clock)
    yield introspection
    await introspection.close()


async def test_an_active_token_is_told(introspection: Introspection, example: ExampleIssuer, issuer: Issuer) -> None:
    said = await introspection.ask(issuer, example.opaque("bob", entitlements=["urn:x"]))
    assert said is not None
    assert (said["active"], said["iss"], said["sub"], said["entitlements"]) == (True, example.url, "bob", ["urn:x"])

    token = example.token(algorithm="ES256")
    assert await introspection.ask(issuer, token)
    example.withdraw(token)
    for other in (token, "made up & \u00e9 \ud800", example.opaque(lifetime=-1)):
        assert await introspection.ask(issuer, other) is None


async def test_names_and_secrets_arrive(introspection: Introspection, example: ExampleIssuer, issuer: Issuer) -> None:
    example.client_id, example.client_secret = "a:b c", "% \u00e9:+&="
    known = replace(issuer, client_id="a:b c", client_secret="% \u00e9:+&=")
    assert await introspection.ask(known, example.opaque())


@pytest.mark.parametrize("answer", [
    IssuerResponse(200, b"active"), IssuerResponse(200, b"{}"), IssuerResponse(200, b'{"active": "true"}'),
    IssuerResponse(200, b"[true]"),
    IssuerResponse(200, b'{"active": 1}'), IssuerResponse(500, b"{}"), IssuerResponse(302, b"", {"Location": "/"}),
    IssuerResponse(200, b'{"active": true, "x": "' + b"x" * 1024 * 1024 + b'"}'),
])  # fmt: skip
async def test_an_answer_that_says_nothing_may_be_another_one_later(
    introspection: Introspection, example: ExampleIssuer, issuer: Issuer, answer: IssuerResponse
) -> None:
    example.instead[INTROSPECT] = answer

    with pytest.raises(TokenRefused, match="Issuer example cannot be asked about the token now") as refused:
        await introspection.ask(issuer, "token")
    assert refused.value.later
    del example.instead[INTROSPECT]
    with pytest.raises(TokenRefused, match="cannot be asked"):
        await introspection.ask(replace(issuer, client_secret="wrong"), example.opaque())
    assert await introspection.ask(issuer, example.opaque())
    example.stop()
    with pytest.raises(TokenRefused, match="cannot be asked"):
        await introspection.ask(issuer, example.opaque())


async def test_all_wait_for_one_answer(introspection: Introspection, example: ExampleIssuer, issuer: Issuer) -> None:
    token = example.opaque()
    answers = await asyncio.gather(*[introspection.ask(issuer, token) for _ in range(50)])
    assert len({str(answer) for answer in answers}) == 1
    assert example.requests[INTROSPECT] == 1


async def test_that_an_issuer_cannot_be_asked_is_logged_twice_a_minute_and_no_more(
    introspection: Introspection, example: ExampleIssuer, issuer: Issuer, clock: ManualClock
) -> None:
    example.instead[INTROSPECT] = IssuerResponse(500, b"")

    async def count_log_lines() -> int:
        with capture_logs() as lines, pytest.raises(TokenRefused, match="cannot be asked"):
            await introspection.ask(issuer, "opaque")
        return len(lines)

    assert (await count_log_lines(), await count_log_lines()) == (1, 0)
    clock.advance(LOG_INTERVAL_MS)
    assert (await count_log_lines(), await count_log_lines()) == (1, 0)


class SlowClient(HttpClient):
    def __init__(self) -> None:
        super().__init__(LOOPBACK)
        self.is_slow = False
        self.answered = asyncio.Event()

    async def post(self, *_: object) -> bytes:
        if not self.is_slow:
            return b'{"active": true}'
        await self.answered.wait()
        return b'{"active": false}'


async def test_only_so_much_is_asked_at_once(discovery: Discovery, issuer: Issuer, clock: ManualClock) -> None:
    """Known active tokens are introspected again each minute; a flood of unknown tokens does not block that."""
    client = SlowClient()
    introspection = Introspection(client, discovery, clock)
    assert await introspection.ask(issuer, "of somebody")
    client.is_slow = True
    asking = [asyncio.create_task(introspection.ask(issuer, str(n))) for n in range(2 * MAX_CONCURRENT_REQUESTS)]
    await asyncio.sleep(0)
    asking.append(asyncio.create_task(introspection.ask(issuer, "of somebody")))
    await asyncio.sleep(0)
    with pytest.raises(TokenRefused, match="cannot be asked"):
        await introspection.ask(issuer, "one more")
    client.answered.set()

    *made_up, known = await asyncio.gather(*asking, return_exceptions=True)
    assert sum(isinstance(each, TokenRefused) for each in made_up) == MAX_CONCURRENT_REQUESTS
    assert [each for each in made_up if not isinstance(each, TokenRefused)] == [None] * MAX_CONCURRENT_REQUESTS
    assert known is None, "it was asked about"
    assert await introspection.ask(issuer, "one more") is None
    await introspection.close()
