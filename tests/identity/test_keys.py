"""Keys: fetched when they are needed, changed when the issuer changes them, kept when it is away."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import jwt
import pytest

from ams.core.clock import ManualClock, Milliseconds
from ams.core.errors import TokenRefused
from ams.core.issuer import Issuer
from ams.identity.jwks import KeySet
from ams.identity.keys import AGAIN, GOOD, NO_GENERATION, REFRESH, KeyFiles, Keys, KeysState, StoredKeySet
from ams.outgoing.client import HttpClient
from demo.issuer import DISCOVERY, JWKS, ExampleIssuer, IssuerResponse
from tests.identity.conftest import LOOPBACK

FETCHED_ON = Milliseconds(1_700_000_000_000)
Start = Callable[..., AbstractAsyncContextManager["Asked"]]
AWAY = "The keys of issuer example cannot be had now"


@dataclass
class Asked:
    """Keys, and the example issuer that is asked for them."""

    keys: Keys
    example: ExampleIssuer
    issuer: Issuer
    clock: ManualClock

    async def accepts(self, token: str | None = None, issuer: Issuer | None = None) -> bool:
        """Whether the signature of a token, else of one of the example's, is good by the key it names."""
        token = token or self.example.token()
        header = jwt.get_unverified_header(token)
        key = await self.keys.key(issuer or self.issuer, header.get("kid"), header["alg"])
        try:
            jwt.decode(token, key, [header["alg"]], options={"verify_aud": False})
        except jwt.InvalidSignatureError:
            return False
        return True

    async def refusal(self, token: str | None = None, issuer: Issuer | None = None) -> tuple[str, bool]:
        """Return why there is no key for a token, and whether there may be one later."""
        with pytest.raises(TokenRefused) as refused:
            await self.accepts(token, issuer)
        return refused.value.message, refused.value.later

    async def settled(self) -> None:
        """Let what goes on in the background end, begun by asking for the generation."""
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
def asked(keys: Keys, example: ExampleIssuer, issuer: Issuer, clock: ManualClock) -> Asked:
    return Asked(keys, example, issuer, clock)


@pytest.fixture
def start(example: ExampleIssuer, issuer: Issuer, clock: ManualClock, tmp_path: Path) -> Start:
    """Start a service that keeps keys in a folder."""

    @asynccontextmanager
    async def started(folder: Path = tmp_path, seconds: float = 60.0) -> AsyncIterator[Asked]:
        keys = Keys(HttpClient(LOOPBACK, seconds=seconds), str(folder), clock)
        yield Asked(keys, example, issuer, clock)
        await keys.close()

    return started


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_keys_are_fetched_for_the_first_token_and_used_for_the_next(asked: Asked, algorithm: str) -> None:
    assert asked.state == KeysState(None, (), "")
    assert asked.generation == NO_GENERATION
    assert not asked.example.requests

    assert await asked.accepts(asked.example.token(algorithm=algorithm))
    assert await asked.accepts(asked.example.token("bob", algorithm=algorithm))

    assert asked.example.requests == {DISCOVERY: 1, JWKS: 1}
    assert asked.state == KeysState(asked.clock.wall(), tuple(key["kid"] for key in asked.example.public_keys()), "")
    assert asked.generation != NO_GENERATION


async def test_a_hundred_who_wait_are_one_fetch(asked: Asked) -> None:
    token = asked.example.token()
    await asyncio.gather(*[asked.accepts(token) for _ in range(100)])
    assert asked.fetches == 1

    asked.example.rotate()
    token = asked.example.token()
    assert all(await asyncio.gather(*[asked.accepts(token) for _ in range(100)]))
    assert asked.fetches == 2


async def test_who_stops_waiting_does_not_end_it_for_the_others(asked: Asked) -> None:
    first, second = (asyncio.create_task(asked.accepts()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()

    assert await second


async def test_an_algorithm_must_be_that_of_the_key(asked: Asked) -> None:
    for algorithm in ("HS256", "none", "ES256", "PS256"):
        with pytest.raises(TokenRefused, match="The token's algorithm is not that of its key"):
            await asked.keys.key(asked.issuer, asked.example.key("RS256").kid, algorithm)


async def test_a_token_without_a_key_id_is_of_the_only_key_that_suits(asked: Asked) -> None:
    token = asked.example.token(headers={"kid": None})
    assert await asked.accepts(token)

    asked.example.rotate(keep_old=True)
    asked.keys.forget(asked.issuer)
    with pytest.raises(TokenRefused, match="does not say which"):
        await asked.accepts(token)
    assert (await asked.refusal(asked.example.token(algorithm="none")))[0].startswith("The token is signed with a key")


async def test_another_key_behind_a_known_id_is_no_good_signature(asked: Asked) -> None:
    with ExampleIssuer() as other:
        assert not await asked.accepts(asked.example.token(key=other.key("RS256").private))


async def test_keys_that_the_issuer_changes_are_changed_here(asked: Asked) -> None:
    old = asked.example.token()
    assert await asked.accepts(old)
    generation = asked.generation

    asked.example.rotate(keep_old=True)
    assert await asked.accepts()
    assert await asked.accepts(old)
    assert asked.generation == generation


async def test_what_a_vanished_key_signed_is_not_believed_any_more(asked: Asked) -> None:
    old = asked.example.token()
    await asked.accepts(old)
    generation = asked.generation

    asked.example.rotate()
    assert await asked.accepts()

    assert asked.generation not in (generation, NO_GENERATION)
    assert (await asked.refusal(old))[0].startswith("The token is signed with a key")


async def test_the_same_id_with_another_key_is_a_key_that_vanished(asked: Asked) -> None:
    first, second = asked.example.public_keys()
    await asked.accepts()
    generation = asked.generation
    asked.example.rotate()
    renamed = [
        {**key, "kid": old["kid"]} for key, old in zip(asked.example.public_keys(), (first, second), strict=True)
    ]
    asked.example.lie = json.dumps({"keys": renamed}).encode()

    asked.clock.advance(REFRESH)
    await asked.settled()

    assert asked.generation != generation


async def test_keys_in_use_are_fetched_again_every_hour_in_the_background(asked: Asked) -> None:
    old = asked.example.token()
    await asked.accepts(old)
    generation = asked.generation
    asked.example.rotate()

    asked.clock.advance(REFRESH - 1)
    await asked.settled()
    assert (asked.fetches, asked.generation) == (1, generation)
    asked.clock.advance(1)
    assert await asked.accepts(old)  # nobody waits for it
    await asked.settled()

    assert asked.fetches == 2
    assert asked.generation != generation


async def test_keys_are_fetched_again_in_the_background_when_issuers_have_changed_on_another_node(asked: Asked) -> None:
    old = asked.example.token()
    await asked.accepts(old)
    asked.example.rotate()

    asked.keys.look_again()
    assert await asked.accepts(old)  # nobody waits for it
    await asked.settled()

    assert not [kid for kid in asked.state.ids if kid == jwt.get_unverified_header(old)["kid"]]
    assert asked.fetches == 2


async def test_made_up_key_ids_have_the_issuer_asked_once_in_half_a_minute(asked: Asked) -> None:
    await asked.accepts()
    made_up = [asked.example.token(headers={"kid": f"made up {number}"}) for number in range(20)]

    assert await asked.refusal(made_up[0]) == ("The token is signed with a key that its issuer does not have", False)
    for token in made_up:
        assert await asked.refusal(token) == ("The token is signed with a key that is not known yet", True)
    assert asked.fetches == 2

    assert await asked.accepts()
    asked.example.rotate()
    asked.clock.advance(AGAIN)
    assert await asked.accepts()
    assert asked.fetches == 3


NOTHING_TO_USE = [
    IssuerResponse(500, b""),
    IssuerResponse(200, b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ", "d": "AQ"}]}'),
    IssuerResponse(200, b'{"keys": [], "x": "' + b"x" * 1024 * 1024 + b'"}'),
]


@pytest.mark.parametrize("answer", NOTHING_TO_USE, ids=range(len(NOTHING_TO_USE)))
async def test_a_key_set_that_lies_is_a_refusal_that_is_shown_and_ends(asked: Asked, answer: IssuerResponse) -> None:
    asked.example.instead[JWKS] = answer

    for _ in range(3):
        assert await asked.refusal() == (AWAY, True)
    fetched_on, ids, failure = asked.state
    assert (fetched_on, ids) == (None, ())
    assert failure
    assert asked.fetches == 1

    del asked.example.instead[JWKS]
    asked.clock.advance(AGAIN)
    assert await asked.accepts()
    assert asked.state.failure == ""


async def test_keys_that_are_left_out_are_shown(asked: Asked) -> None:
    asked.example.lie = json.dumps(
        {"keys": [{"kty": "oct", "kid": "a", "k": "c2VjcmV0"}, *asked.example.public_keys()]}
    ).encode()

    assert await asked.accepts()

    assert asked.state.failure == "key a is left out: it is symmetric"
    assert "a" not in asked.state.ids


async def test_a_key_set_that_hangs_is_waited_for_once_and_not_for_long(start: Start, example: ExampleIssuer) -> None:
    async with start(seconds=2.0) as asked:
        example.hang = True
        asked.issuer = replace(asked.issuer, jwks_url=f"{example.url}/jwks")

        refusals = await asyncio.gather(*[asked.refusal() for _ in range(20)])
        assert set(refusals) == {(AWAY, True)}
        assert await asked.refusal() == (AWAY, True)

        assert asked.fetches == 1
        assert asked.state.failure == "its keys cannot be had: it took too long"


async def test_an_issuer_that_goes_away_leaves_its_keys_good_for_a_day(asked: Asked) -> None:
    token = asked.example.token()
    await asked.accepts(token)
    fetched_on, generation = asked.clock.wall(), asked.generation
    asked.example.stop()

    asked.clock.advance(GOOD - 1)
    await asked.settled()
    assert await asked.accepts(token)
    assert asked.generation == generation
    assert asked.state.fetched_on == fetched_on
    assert asked.state.failure.startswith("its description cannot be had: ")
    assert await asked.refusal(asked.example.token(headers={"kid": "new"})) == (
        "The token is signed with a key that is not known yet",
        True,
    )

    asked.clock.advance(1)
    assert asked.generation == NO_GENERATION
    assert await asked.refusal(token) == (AWAY, True)

    asked.example.start()
    asked.clock.advance(AGAIN)
    assert await asked.accepts(token)
    assert asked.generation == generation  # they are the same keys


async def test_keys_that_moved_are_found_again(asked: Asked) -> None:
    await asked.accepts()
    asked.example.instead[JWKS] = IssuerResponse(404, b"")
    moved = {"issuer": asked.example.url, "jwks_uri": f"{asked.example.url}/keys"}
    asked.example.instead[DISCOVERY] = IssuerResponse(200, json.dumps(moved).encode())
    asked.example.rotate()
    asked.example.instead["/keys"] = IssuerResponse(200, json.dumps({"keys": asked.example.public_keys()}).encode())

    assert await asked.refusal() == (AWAY, True)
    asked.clock.advance(AGAIN)
    assert await asked.accepts()


async def test_a_start_needs_no_issuer(start: Start, example: ExampleIssuer, clock: ManualClock) -> None:
    token = example.token()
    async with start() as asked:
        await asked.accepts(token)
    fetched_on = clock.wall()
    example.stop()
    clock.advance(GOOD - 1)

    async with start() as asked:
        assert await asked.accepts(token)
        assert asked.generation != NO_GENERATION
        assert asked.state.fetched_on == fetched_on
        assert asked.state.failure
        clock.advance(1)
        assert await asked.refusal(token) == (AWAY, True)
    async with start() as asked:
        assert await asked.refusal(token) == (AWAY, True)


async def test_a_start_asks_an_issuer_that_is_there(start: Start, example: ExampleIssuer) -> None:
    token = example.token()
    async with start() as asked:
        await asked.accepts(token)
    example.rotate()

    async with start() as asked:
        assert (await asked.refusal(token))[0].startswith("The token is signed with a key")


async def test_a_file_of_the_future_is_good_for_a_day(start: Start, example: ExampleIssuer, clock: ManualClock) -> None:
    async with start() as asked:
        await asked.accepts()
    example.stop()
    clock.step(-10 * GOOD)

    async with start() as asked:
        assert await asked.accepts()
        clock.advance(GOOD)
        assert asked.generation == NO_GENERATION


async def test_other_urls_mean_other_keys(start: Start, example: ExampleIssuer, issuer: Issuer) -> None:
    async with start() as asked:
        await asked.accepts()
        with ExampleIssuer() as other:
            moved = replace(issuer, jwks_url=f"{other.url}/jwks")

            assert asked.keys.generation(moved) == NO_GENERATION
            assert await asked.accepts(other.token(), moved)
            assert (await asked.refusal(issuer=moved))[0].startswith("The token is signed with a key")


async def test_what_is_forgotten_is_in_no_memory_or_file(start: Start, example: ExampleIssuer, tmp_path: Path) -> None:
    async with start() as asked:
        await asked.accepts()
        generation = asked.generation

        asked.keys.forget(asked.issuer)
        asked.keys.forget(asked.issuer)

        assert asked.state == KeysState(None, (), "")
        assert asked.generation == NO_GENERATION
        assert not list(tmp_path.iterdir())
        assert await asked.accepts()
        assert example.requests == {DISCOVERY: 2, JWKS: 2}
        assert asked.generation not in (generation, NO_GENERATION)


async def test_keys_that_cannot_be_kept_are_used_too(start: Start, example: ExampleIssuer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async with start(tmp_path / "file") as asked:
        assert await asked.accepts()


@pytest.fixture
def kept(tmp_path: Path) -> KeyFiles:
    return KeyFiles(str(tmp_path / "issuers"))


@pytest.fixture
def found(example: ExampleIssuer) -> KeySet:
    return KeySet.of(example.public_keys())


def test_keys_are_kept_for_the_owner_only(kept: KeyFiles, found: KeySet, issuer: Issuer, tmp_path: Path) -> None:
    kept.write(issuer, found.keys, FETCHED_ON)

    assert kept.read(issuer) == StoredKeySet(found, FETCHED_ON)
    path = tmp_path / "issuers" / "example.json"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert os.listdir(path.parent) == ["example.json"]


def test_keys_of_another_url_are_not_those_of_the_issuer(kept: KeyFiles, found: KeySet, issuer: Issuer) -> None:
    kept.write(issuer, found.keys, FETCHED_ON)

    assert kept.read(replace(issuer, url="https://example.org")) is None
    assert kept.read(replace(issuer, jwks_url="https://example.org/jwks")) is None


def test_a_torn_file_is_as_if_it_were_not_there(kept: KeyFiles, found: KeySet, issuer: Issuer, tmp_path: Path) -> None:
    assert kept.read(issuer) is None
    kept.write(issuer, found.keys, FETCHED_ON)
    path = tmp_path / "issuers" / "example.json"
    whole = path.read_bytes()

    for data in (
        b"",
        whole[: len(whole) // 2],
        b"[]",
        b"{}",
        b"\xff",
        whole.replace(b'"EC"', b"1").replace(b'"RSA"', b"2"),
    ):
        path.write_bytes(data)
        assert kept.read(issuer) is None
    path.unlink()
    path.mkdir()
    assert kept.read(issuer) is None
