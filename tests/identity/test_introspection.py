"""Introspection: asking the issuer about a token."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from ams.core.clock import ManualClock
from ams.core.errors import TokenRefused
from ams.core.issuer import Issuer
from ams.identity.discovery import Discovery
from ams.identity.introspection import LOGGED_AGAIN, MOST_AT_ONCE, Introspection
from ams.outgoing.client import HttpClient
from demo.issuer import INTROSPECT, ExampleIssuer, IssuerResponse
from tests.identity.conftest import LOOPBACK


@pytest.fixture
async def introspection(client: HttpClient, discovery: Discovery, clock: ManualClock) -> AsyncIterator[Introspection]:
    introspection = Introspection(client, discovery, clock)
    yield introspection
    await introspection.close()


async def test_an_active_token_is_told(introspection: Introspection, example: ExampleIssuer, issuer: Issuer) -> None:
    said = await introspection.ask(issuer, example.opaque("bob", entitlements=["urn:x"]))

    assert (said["active"], said["iss"], said["sub"], said["entitlements"]) == (True, example.url, "bob", ["urn:x"])


async def test_other_tokens_are_not_active(
    introspection: Introspection, example: ExampleIssuer, issuer: Issuer
) -> None:
    token = example.token(algorithm="ES256")
    assert await introspection.ask(issuer, token)
    example.withdraw(token)

    assert await introspection.ask(issuer, token) is None
    assert await introspection.ask(issuer, "made up & \u00e9 \ud800") is None
    assert await introspection.ask(issuer, example.opaque(lifetime=-1)) is None


async def test_names_and_secrets_arrive(introspection: Introspection, example: ExampleIssuer, issuer: Issuer) -> None:
    example.client_id, example.client_secret = "a:b c", "% \u00e9:+&="

    known = replace(issuer, client_id="a:b c", client_secret="% \u00e9:+&=")

    assert await introspection.ask(known, example.opaque())


@pytest.mark.parametrize(
    "answer",
    [
        IssuerResponse(200, b"active"), IssuerResponse(200, b"{}"), IssuerResponse(200, b'{"active": "true"}'),
        IssuerResponse(200, b"[true]"),
        IssuerResponse(200, b'{"active": 1}'), IssuerResponse(500, b"{}"), IssuerResponse(302, b"", {"Location": "/"}),
        IssuerResponse(200, b'{"active": true, "x": "' + b"x" * 1024 * 1024 + b'"}'),
    ],
)  # fmt: skip
async def test_an_answer_that_says_nothing_may_be_another_one_later(
    introspection: Introspection, example: ExampleIssuer, issuer: Issuer, answer: IssuerResponse
) -> None:
    example.instead[INTROSPECT] = answer

    with pytest.raises(TokenRefused, match="Issuer example cannot be asked about the token now") as refused:
        await introspection.ask(issuer, "token")
    assert refused.value.later


async def test_an_issuer_may_answer_later(introspection: Introspection, example: ExampleIssuer, issuer: Issuer) -> None:
    with pytest.raises(TokenRefused, match="cannot be asked"):
        await introspection.ask(replace(issuer, client_secret="wrong"), example.opaque())
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

    async def logged() -> int:
        with capture_logs() as lines, pytest.raises(TokenRefused, match="cannot be asked"):
            await introspection.ask(issuer, "opaque")
        return len(lines)

    assert (await logged(), await logged()) == (1, 0)
    clock.advance(LOGGED_AGAIN)
    assert (await logged(), await logged()) == (1, 0)


class Slow(HttpClient):
    """Says that no token is active, when it is let; before, that each one is."""

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
    """Whose token was active is asked about again each minute, and not refused for what others show meanwhile."""
    client = Slow()
    introspection = Introspection(client, discovery, clock)
    assert await introspection.ask(issuer, "of somebody")
    client.is_slow = True
    asking = [asyncio.create_task(introspection.ask(issuer, str(number))) for number in range(2 * MOST_AT_ONCE)]
    await asyncio.sleep(0)
    asking.append(asyncio.create_task(introspection.ask(issuer, "of somebody")))
    await asyncio.sleep(0)
    with pytest.raises(TokenRefused, match="cannot be asked"):
        await introspection.ask(issuer, "one more")
    client.answered.set()

    *made_up, known = await asyncio.gather(*asking, return_exceptions=True)
    assert sum(isinstance(each, TokenRefused) for each in made_up) == MOST_AT_ONCE
    assert [each for each in made_up if not isinstance(each, TokenRefused)] == [None] * MOST_AT_ONCE
    assert known is None, "it was asked about"
    assert await introspection.ask(issuer, "one more") is None
    await introspection.close()
