"""Keys of issuers: which published keys are used, when they are fetched and rotated, and outages of the issuer."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from structlog.testing import capture_logs

from ams.core.errors import TokenRefused
from ams.core.issuer import Issuer
from ams.identity.issuer_keys import KEYS_TTL_MS, NO_GENERATION, REFRESH_MS, IssuerKeyCache, KeySet, KeysState
from ams.identity.issuers import IssuerFailed
from ams.outgoing.client import HttpClient
from ams.storage.document_cache import RETRY_MS
from demo.issuer import DISCOVERY, JWKS, ExampleIssuer, IssuerResponse
from tests.identity.signing import CURVES
from tests.support.clock import ManualClock


def make_jwk(key: object, algorithm: str, **more: Any) -> dict[str, Any]:
    return {**jwt.get_algorithm_by_name(algorithm).to_jwk(key, as_dict=True), **more}


def of_curve(algorithm: str, **more: Any) -> dict[str, Any]:
    return make_jwk(ec.generate_private_key(CURVES[algorithm]).public_key(), algorithm, **more)


GOOD_KEY = of_curve("ES256", kid="good", use="sig", alg="ES256")


def parse(*keys: object) -> KeySet:
    return KeySet.parse(json.dumps({"keys": keys}).encode())


@pytest.mark.parametrize("algorithm", CURVES)
def test_a_key_of_a_curve_is_for_the_algorithm_of_the_curve_alone(algorithm: str) -> None:
    (key,) = parse(of_curve(algorithm, kid="k")).keys
    assert [each for each in ("RS256", *CURVES, "EdDSA", "HS256", "none", "ES256K") if key.suits(each)] == [algorithm]


def test_an_rsa_key_is_for_all_of_rsa_unless_it_says_for_which() -> None:
    rsa_key = rsa.generate_private_key(65537, 2048).public_key()
    any_key, one_key = parse(make_jwk(rsa_key, "RS256", kid="a"), make_jwk(rsa_key, "RS256", kid="b", alg="PS384")).keys
    algorithms = [f"{kind}S{bits}" for kind in "RPEH" for bits in (256, 384, 512)]

    assert [each for each in algorithms if any_key.suits(each)] == algorithms[:6]
    assert [each for each in algorithms if one_key.suits(each)] == ["PS384"]


@pytest.mark.parametrize("key", [ed25519.Ed25519PrivateKey.generate(), ed448.Ed448PrivateKey.generate()])
def test_edwards_keys_are_taken(key: ed25519.Ed25519PrivateKey) -> None:
    (taken,) = parse(make_jwk(key.public_key(), "EdDSA")).keys
    assert taken.kid is None
    assert taken.suits("EdDSA")
    jwt.decode(jwt.encode({}, key, "EdDSA"), taken.usable("EdDSA"), ["EdDSA"])


@pytest.mark.parametrize("other", [
    {"use": "enc"}, {"key_ops": ["encrypt"]}, {"key_ops": "verify"}, {"kty": "XYZ"}, {"kty": None},
    {"kty": "EC", "crv": "secp256k1"}, {"kty": "OKP", "crv": "X25519"}, {"use": ["sig"]},
])  # fmt: skip
def test_keys_for_something_else_are_left_out_without_a_word(other: dict[str, Any]) -> None:
    found = parse({**GOOD_KEY, "kid": "other", **other}, GOOD_KEY)
    assert [key.kid for key in found.keys] == ["good"]
    assert found.oddities == ()


@pytest.mark.parametrize(("odd", "said"), [
    ({"kty": "oct", "kid": "o", "k": "c2VjcmV0"}, "key o is left out: it is symmetric"),
    ({**GOOD_KEY, "kid": "o", "k": "c2VjcmV0"}, "key o is left out: it is symmetric"),
    ({**GOOD_KEY, "kid": "o", "d": "AQAB"}, "key o is left out: it is private"),
    *(({**GOOD_KEY, "kid": "o", "alg": name}, f"key o is left out: it is for {name}")
      for name in ("HS256", "none", "ES384")),
    *(({**GOOD_KEY, "kid": "o", **odd}, "key o is left out: it is malformed")
      for odd in ({"alg": 7}, {"alg": "\r\n"}, {"x": GOOD_KEY["y"]}, {"y": None}, {"x": "A" * 100_000})),
    *(({**GOOD_KEY, "kid": kid}, "key 1 is left out: it is malformed") for kid in (5, "x" * 256, "o\x1b[2J")),
    ("text", "key 1 is left out: it is malformed"),
    ({"kty": "RSA", "kid": "o", "n": "A" * 2000, "e": "AQAB"}, "key o is left out: it is malformed"),
    ({"kty": "RSA", "kid": "o", "n": "_" * 171, "e": "AQAB"}, "key o is left out: it has 1024 bits"),
    ({"kty": "RSA", "kid": "o", "n": "_" * 342, "e": "_" * 340}, "key o is left out: its exponent has 2040 bits"),
    ({"kty": "RSA", "kid": "o", "n": "_" * 342, "e": "AQAAAAE"}, "key o is left out: its exponent has 33 bits"),
    ({"kty": "RSA", "kid": "o", "n": "_" * 2000, "e": "AQAB"}, "key o is left out: it has 12000 bits"),
])  # fmt: skip
def test_odd_keys_are_left_out_and_said(odd: object, said: str) -> None:
    found = parse(odd, GOOD_KEY)
    assert [key.kid for key in found.keys] == ["good"]
    assert found.oddities == (said,)


@pytest.mark.parametrize(("data", "said"), [
    (b"<html></html>", "its key set is no JSON object"), (b"{}", "its key set has no keys"),
    (b'{"keys": {}}', "its key set has no keys"), (b'{"keys": []}', "its key set has no key that signs tokens"),
    (b'{"keys": [{"kty": "oct", "k": ""}]}', "no key that signs tokens; key 1 is left out: it is symmetric"),
    (json.dumps({"keys": [GOOD_KEY] * 101}).encode(), "its key set has more than 100 keys"),
])  # fmt: skip
def test_a_set_without_a_key_to_use_is_an_error(data: bytes, said: str) -> None:
    with pytest.raises(IssuerFailed, match=said):
        KeySet.parse(data)


def test_what_is_published_again_is_the_same_without_what_is_not_used() -> None:
    (key,) = parse({**GOOD_KEY, "x5c": ["..."]}).keys
    assert key.as_jwk() == {name: GOOD_KEY[name] for name in ("kty", "crv", "x", "y", "kid", "alg")}
    assert parse(key.as_jwk(), GOOD_KEY).keys == (key,)


Start = Callable[..., AbstractAsyncContextManager["IssuerKeys"]]
AWAY = "The keys of issuer example cannot be had now"
NOT_THERE = "The token is signed with a key that its issuer does not have"
NOT_KNOWN = "The token is signed with a key that is not known yet"


@dataclass
class IssuerKeys:
    keys: IssuerKeyCache
    example: ExampleIssuer
    issuer: Issuer
    clock: ManualClock

    async def accepts(self, token: str | None = None, issuer: Issuer | None = None) -> bool:
        """Return whether a token's signature, by default one of the example's, is valid by its key."""
        token = token or self.example.token()
        header = jwt.get_unverified_header(token)
        key = await self.keys.key(issuer or self.issuer, header.get("kid"), header["alg"])
        try:
            jwt.decode(token, key, [header["alg"]], options={"verify_aud": False})
        except jwt.InvalidSignatureError:
            return False
        return True

    async def refusal(self, token: str | None = None, issuer: Issuer | None = None) -> tuple[str, bool]:
        """Return why a token has no key, and whether it may have one later."""
        with pytest.raises(TokenRefused) as refused:
            await self.accepts(token, issuer)
        return refused.value.message, refused.value.later

    async def wait_for_fetches(self) -> None:
        """Wait for background work, started by reading the generation."""
        self.keys.generation(self.issuer)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            await task

    @property
    def generation(self) -> int:
        return self.keys.generation(self.issuer)

    @property
    def state(self) -> KeysState:
        return self.keys.state(self.issuer)

    @property
    def fetches(self) -> int:
        return self.example.requests[JWKS]


@pytest.fixture
def issuer_keys(keys: IssuerKeyCache, example: ExampleIssuer, issuer: Issuer, clock: ManualClock) -> IssuerKeys:
    return IssuerKeys(keys, example, issuer, clock)


@pytest.fixture
def start_keys(example: ExampleIssuer, issuer: Issuer, clock: ManualClock, tmp_path: Path, client: HttpClient) -> Start:
    @asynccontextmanager
    async def open_keys(folder: Path = tmp_path) -> AsyncIterator[IssuerKeys]:
        keys = IssuerKeyCache(client, str(folder), clock)
        yield IssuerKeys(keys, example, issuer, clock)
        await keys.close()

    return open_keys


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_keys_are_fetched_for_one_token_and_used_for_the_next(issuer_keys: IssuerKeys, algorithm: str) -> None:
    assert issuer_keys.state == KeysState(None, (), "")
    assert issuer_keys.generation == NO_GENERATION
    assert not issuer_keys.example.requests

    assert await issuer_keys.accepts(issuer_keys.example.token(algorithm=algorithm))
    assert await issuer_keys.accepts(issuer_keys.example.token("bob", algorithm=algorithm))

    assert issuer_keys.example.requests == {DISCOVERY: 1, JWKS: 1}
    assert issuer_keys.state == KeysState(
        issuer_keys.clock.wall(), tuple(key["kid"] for key in issuer_keys.example.public_keys()), ""
    )
    assert issuer_keys.generation != NO_GENERATION


async def test_an_algorithm_must_be_that_of_the_key(issuer_keys: IssuerKeys) -> None:
    for algorithm in ("HS256", "none", "ES256", "PS256"):
        with pytest.raises(TokenRefused, match="The token's algorithm is not that of its key"):
            await issuer_keys.keys.key(issuer_keys.issuer, issuer_keys.example.key("RS256").kid, algorithm)


async def test_a_token_without_a_key_id_is_of_the_only_key_that_suits(issuer_keys: IssuerKeys) -> None:
    token = issuer_keys.example.token(headers={"kid": None})
    assert await issuer_keys.accepts(token)

    issuer_keys.example.rotate(keep_old=True)
    issuer_keys.keys.forget(issuer_keys.issuer)
    with pytest.raises(TokenRefused, match="does not say which"):
        await issuer_keys.accepts(token)
    assert (await issuer_keys.refusal(issuer_keys.example.token(algorithm="none")))[0].startswith(
        "The token is signed with a key"
    )


async def test_another_key_behind_a_known_id_is_no_good_signature(issuer_keys: IssuerKeys) -> None:
    with ExampleIssuer() as other:
        assert not await issuer_keys.accepts(issuer_keys.example.token(key=other.key("RS256").private))


async def test_keys_change_with_the_issuer_and_a_vanished_key_is_not_believed_any_more(issuer_keys: IssuerKeys) -> None:
    old = issuer_keys.example.token()
    assert await issuer_keys.accepts(old)
    generation = issuer_keys.generation

    issuer_keys.example.rotate(keep_old=True)
    assert await issuer_keys.accepts()
    assert await issuer_keys.accepts(old)
    assert issuer_keys.generation == generation

    issuer_keys.example.rotate()
    issuer_keys.clock.advance(RETRY_MS)
    assert await issuer_keys.accepts()
    assert issuer_keys.generation not in (generation, NO_GENERATION)
    assert await issuer_keys.refusal(old) == (NOT_KNOWN, True)


async def test_the_same_id_with_another_key_is_a_key_that_vanished(issuer_keys: IssuerKeys) -> None:
    await issuer_keys.accepts()
    generation, ids = issuer_keys.generation, [key["kid"] for key in issuer_keys.example.public_keys()]
    issuer_keys.example.rotate()
    renamed = [{**key, "kid": kid} for key, kid in zip(issuer_keys.example.public_keys(), ids, strict=True)]
    issuer_keys.example.lie = json.dumps({"keys": renamed}).encode()

    issuer_keys.clock.advance(REFRESH_MS)
    await issuer_keys.wait_for_fetches()

    assert issuer_keys.generation != generation


async def test_keys_in_use_are_fetched_again_each_hour_and_when_issuers_changed(issuer_keys: IssuerKeys) -> None:
    await issuer_keys.accepts()
    for fetches, make_due in enumerate(
        (lambda: issuer_keys.clock.advance(REFRESH_MS), issuer_keys.keys.refetch_all), start=1
    ):
        old, generation = issuer_keys.example.token(), issuer_keys.generation
        issuer_keys.example.rotate()
        await issuer_keys.wait_for_fetches()
        assert (issuer_keys.fetches, issuer_keys.generation) == (fetches, generation)
        make_due()
        assert await issuer_keys.accepts(old)  # nobody waits for it
        await issuer_keys.wait_for_fetches()
        assert issuer_keys.fetches == fetches + 1
        assert issuer_keys.generation != generation


async def test_made_up_key_ids_have_the_issuer_asked_once_in_half_a_minute(issuer_keys: IssuerKeys) -> None:
    await issuer_keys.accepts()
    assert await issuer_keys.refusal(issuer_keys.example.token(headers={"kid": "made up"})) == (NOT_THERE, False)
    for number in range(20):
        assert await issuer_keys.refusal(issuer_keys.example.token(headers={"kid": f"made up {number}"})) == (
            NOT_KNOWN, True,
        )  # fmt: skip
    assert await issuer_keys.accepts()
    assert issuer_keys.fetches == 2


NOTHING_TO_USE = [IssuerResponse(500, b""),
                  IssuerResponse(200, b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ", "d": "AQ"}]}'),
                  IssuerResponse(200, b'{"keys": [], "x": "' + b"x" * 1024 * 1024 + b'"}')]  # fmt: skip


@pytest.mark.parametrize("answer", NOTHING_TO_USE, ids=range(len(NOTHING_TO_USE)))
async def test_a_bad_key_set_is_a_refusal_that_ends(issuer_keys: IssuerKeys, answer: IssuerResponse) -> None:
    issuer_keys.example.instead[JWKS] = answer

    assert await issuer_keys.refusal() == (AWAY, True)
    fetched_on, ids, failure = issuer_keys.state
    assert (fetched_on, ids) == (None, ())
    assert failure

    del issuer_keys.example.instead[JWKS]
    odd = [{"kty": "oct", "kid": "a", "k": "c2VjcmV0"}, *issuer_keys.example.public_keys()]
    issuer_keys.example.lie = json.dumps({"keys": odd}).encode()
    issuer_keys.clock.advance(RETRY_MS)
    assert await issuer_keys.accepts()
    assert issuer_keys.state.failure == "key a is left out: it is symmetric"
    assert "a" not in issuer_keys.state.ids


async def test_an_issuer_that_goes_away_leaves_its_keys_good_for_a_day(issuer_keys: IssuerKeys) -> None:
    token = issuer_keys.example.token()
    await issuer_keys.accepts(token)
    fetched_on, generation = issuer_keys.clock.wall(), issuer_keys.generation
    issuer_keys.example.stop()

    issuer_keys.clock.advance(KEYS_TTL_MS - 1)
    await issuer_keys.wait_for_fetches()
    assert await issuer_keys.accepts(token)
    assert (issuer_keys.generation, issuer_keys.state.fetched_on) == (generation, fetched_on)
    assert issuer_keys.state.failure.startswith("its description cannot be had: ")
    assert await issuer_keys.refusal(issuer_keys.example.token(headers={"kid": "new"})) == (NOT_KNOWN, True)

    issuer_keys.clock.advance(1)
    assert issuer_keys.generation == NO_GENERATION
    for _ in range(2):
        assert await issuer_keys.refusal(token) == (AWAY, True)

    issuer_keys.example.start()
    issuer_keys.clock.advance(RETRY_MS)
    assert await issuer_keys.accepts(token)
    assert issuer_keys.generation == generation  # they are the same keys


async def test_keys_that_moved_are_found_again(issuer_keys: IssuerKeys) -> None:
    await issuer_keys.accepts()
    issuer_keys.example.instead[JWKS] = IssuerResponse(404, b"")
    moved = {"issuer": issuer_keys.example.url, "jwks_uri": f"{issuer_keys.example.url}/keys"}
    issuer_keys.example.instead[DISCOVERY] = IssuerResponse(200, json.dumps(moved).encode())
    issuer_keys.example.rotate()
    issuer_keys.example.instead["/keys"] = IssuerResponse(
        200, json.dumps({"keys": issuer_keys.example.public_keys()}).encode()
    )

    assert await issuer_keys.refusal() == (AWAY, True)
    assert issuer_keys.state.failure == "its keys cannot be had: the answer was 404"
    issuer_keys.clock.advance(RETRY_MS)
    assert await issuer_keys.accepts()


async def test_a_start_needs_no_issuer_for_a_day(start_keys: Start, example: ExampleIssuer, clock: ManualClock) -> None:
    token = example.token()
    async with start_keys() as asked:
        await asked.accepts(token)
    fetched_on = clock.wall()
    example.stop()
    clock.advance(KEYS_TTL_MS - 1)

    async with start_keys() as asked:
        assert await asked.accepts(token)
        assert asked.generation != NO_GENERATION
        assert asked.state.fetched_on == fetched_on
        assert asked.state.failure
        clock.advance(1)
        assert await asked.refusal(token) == (AWAY, True)
    async with start_keys() as asked:
        assert await asked.refusal(token) == (AWAY, True)
    clock.step(-10 * KEYS_TTL_MS)
    async with start_keys() as asked:  # a file of the future
        assert await asked.accepts(token)
        clock.advance(KEYS_TTL_MS)
        assert asked.generation == NO_GENERATION
    example.start()
    example.rotate()
    async with start_keys() as asked:
        assert await asked.refusal(token) == (NOT_THERE, False), "an issuer is asked"


async def test_other_urls_mean_other_keys(start_keys: Start, example: ExampleIssuer, issuer: Issuer) -> None:
    async with start_keys() as asked:
        await asked.accepts()
        with ExampleIssuer() as other:
            moved = replace(issuer, jwks_url=f"{other.url}/jwks")

            assert asked.keys.generation(moved) == NO_GENERATION
            assert await asked.accepts(other.token(), moved)
            assert await asked.refusal(issuer=moved) == (NOT_THERE, False)


async def test_forgotten_keys_leave_memory_and_file(start_keys: Start, example: ExampleIssuer, tmp_path: Path) -> None:
    async with start_keys() as asked:
        await asked.accepts()
        generation = asked.generation
        asked.keys.forget(asked.issuer)
        assert (asked.state, asked.generation) == (KeysState(None, (), ""), NO_GENERATION)
        assert not list(tmp_path.iterdir())
        assert await asked.accepts()
        assert example.requests == {DISCOVERY: 2, JWKS: 2}
        assert asked.generation not in (generation, NO_GENERATION)


async def test_kept_keys_are_one_file_of_the_issuer(start_keys: Start, example: ExampleIssuer, tmp_path: Path) -> None:
    async with start_keys() as asked:
        await asked.accepts()
    (path,) = tmp_path.iterdir()
    assert path.name == "example.json"
    with capture_logs() as lines:
        async with start_keys(path) as asked:
            assert await asked.accepts()
    told = {"event": "issuer.keys_not_kept", "issuer": "example", "reason": "Not a directory"}
    assert told.items() <= lines[-1].items()
    example.stop()

    whole = path.read_bytes()
    odd = whole.replace(b'"EC"', b"1").replace(b'"RSA"', b"2")
    for data in (b"", whole[: len(whole) // 2], b"[]", b"{}", b"\xff", odd):
        path.write_bytes(data)
        with capture_logs() as lines:
            async with start_keys() as asked:
                assert await asked.refusal() == (AWAY, True)
        assert [each["event"] for each in lines] == ["issuer.no_keys", "issuer.kept_keys_unreadable"]
        assert lines[1]["issuer"] == "example"
