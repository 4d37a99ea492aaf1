"""Keys: fetched when they are needed, changed when the issuer changes them, kept when it is away."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
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
AWAY = "The keys of issuer example cannot be had now"


async def accepts(keys: Keys, issuer: Issuer, token: str) -> bool:
    """Whether the signature of a token is good by the key it names."""
    header = jwt.get_unverified_header(token)
    key = await keys.key(issuer, header.get("kid"), header["alg"])
    try:
        jwt.decode(token, key, [header["alg"]], options={"verify_aud": False})
    except jwt.InvalidSignatureError:
        return False
    return True


async def refusal(keys: Keys, issuer: Issuer, token: str) -> tuple[str, bool]:
    """Return why there is no key for a token, and whether there may be one later."""
    with pytest.raises(TokenRefused) as refused:
        await accepts(keys, issuer, token)
    return refused.value.message, refused.value.later


async def settled(keys: Keys, issuer: Issuer) -> None:
    """Let what goes on in the background end, begun by asking for the generation."""
    keys.generation(issuer)
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        await task


@asynccontextmanager
async def started(clock: ManualClock, folder: Path, seconds: float = 5.0) -> AsyncIterator[Keys]:
    """Yield keys as after a start of the service."""
    keys = Keys(HttpClient(LOOPBACK, seconds=seconds), str(folder), clock)
    yield keys
    await keys.close()


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_keys_are_fetched_for_the_first_token_and_used_for_the_next(
    keys: Keys, example: ExampleIssuer, issuer: Issuer, clock: ManualClock, algorithm: str
) -> None:
    assert keys.state(issuer) == KeysState(None, (), "")
    assert keys.generation(issuer) == NO_GENERATION
    assert not example.requests

    assert await accepts(keys, issuer, example.token(algorithm=algorithm))
    assert await accepts(keys, issuer, example.token("bob", algorithm=algorithm))

    assert example.requests == {DISCOVERY: 1, JWKS: 1}
    assert keys.state(issuer) == KeysState(clock.wall(), tuple(key["kid"] for key in example.public_keys()), "")
    assert keys.generation(issuer) != NO_GENERATION


async def test_a_hundred_who_wait_are_one_fetch(keys: Keys, example: ExampleIssuer, issuer: Issuer) -> None:
    token = example.token()
    await asyncio.gather(*[accepts(keys, issuer, token) for _ in range(100)])
    assert example.requests[JWKS] == 1

    example.rotate()
    token = example.token()
    assert all(await asyncio.gather(*[accepts(keys, issuer, token) for _ in range(100)]))
    assert example.requests[JWKS] == 2


async def test_who_stops_waiting_does_not_end_it_for_the_others(
    keys: Keys, example: ExampleIssuer, issuer: Issuer
) -> None:
    first, second = (asyncio.create_task(accepts(keys, issuer, example.token())) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()

    assert await second


async def test_an_algorithm_must_be_that_of_the_key(keys: Keys, example: ExampleIssuer, issuer: Issuer) -> None:
    for algorithm in ("HS256", "none", "ES256", "PS256"):
        with pytest.raises(TokenRefused, match="The token's algorithm is not that of its key"):
            await keys.key(issuer, example.key("RS256").kid, algorithm)


async def test_a_token_without_a_key_id_is_of_the_only_key_that_suits(
    keys: Keys, example: ExampleIssuer, issuer: Issuer
) -> None:
    token = example.token(headers={"kid": None})
    assert await accepts(keys, issuer, token)

    example.rotate(keep_old=True)
    keys.forget(issuer)
    with pytest.raises(TokenRefused, match="does not say which"):
        await accepts(keys, issuer, token)
    assert (await refusal(keys, issuer, example.token(algorithm="none")))[0].startswith(
        "The token is signed with a key"
    )


async def test_another_key_behind_a_known_id_is_no_good_signature(
    keys: Keys, example: ExampleIssuer, issuer: Issuer
) -> None:
    with ExampleIssuer() as other:
        assert not await accepts(keys, issuer, example.token(key=other.key("RS256").private))


async def test_keys_that_the_issuer_changes_are_changed_here(
    keys: Keys, example: ExampleIssuer, issuer: Issuer
) -> None:
    old = example.token()
    assert await accepts(keys, issuer, old)
    generation = keys.generation(issuer)

    example.rotate(keep_old=True)
    assert await accepts(keys, issuer, example.token())
    assert await accepts(keys, issuer, old)
    assert keys.generation(issuer) == generation


async def test_what_a_vanished_key_signed_is_not_believed_any_more(
    keys: Keys, example: ExampleIssuer, issuer: Issuer
) -> None:
    old = example.token()
    await accepts(keys, issuer, old)
    generation = keys.generation(issuer)

    example.rotate()
    assert await accepts(keys, issuer, example.token())

    assert keys.generation(issuer) not in (generation, NO_GENERATION)
    assert (await refusal(keys, issuer, old))[0].startswith("The token is signed with a key")


async def test_the_same_id_with_another_key_is_a_key_that_vanished(
    keys: Keys, example: ExampleIssuer, issuer: Issuer, clock: ManualClock
) -> None:
    first, second = example.public_keys()
    await accepts(keys, issuer, example.token())
    generation = keys.generation(issuer)
    example.rotate()
    renamed = [{**key, "kid": old["kid"]} for key, old in zip(example.public_keys(), (first, second), strict=True)]
    example.lie = json.dumps({"keys": renamed}).encode()

    clock.advance(REFRESH)
    await settled(keys, issuer)

    assert keys.generation(issuer) != generation


async def test_keys_in_use_are_fetched_again_every_hour_in_the_background(
    keys: Keys, example: ExampleIssuer, issuer: Issuer, clock: ManualClock
) -> None:
    old = example.token()
    await accepts(keys, issuer, old)
    generation = keys.generation(issuer)
    example.rotate()

    clock.advance(REFRESH - 1)
    await settled(keys, issuer)
    assert (example.requests[JWKS], keys.generation(issuer)) == (1, generation)
    clock.advance(1)
    assert await accepts(keys, issuer, old)  # nobody waits for it
    await settled(keys, issuer)

    assert example.requests[JWKS] == 2
    assert keys.generation(issuer) != generation


async def test_keys_are_fetched_again_in_the_background_when_issuers_have_changed_on_another_node(
    keys: Keys, example: ExampleIssuer, issuer: Issuer
) -> None:
    old = example.token()
    await accepts(keys, issuer, old)
    example.rotate()

    keys.look_again()
    assert await accepts(keys, issuer, old)  # nobody waits for it
    await settled(keys, issuer)

    assert not [kid for kid in keys.state(issuer).ids if kid == jwt.get_unverified_header(old)["kid"]]
    assert example.requests[JWKS] == 2


async def test_made_up_key_ids_have_the_issuer_asked_once_in_half_a_minute(
    keys: Keys, example: ExampleIssuer, issuer: Issuer, clock: ManualClock
) -> None:
    await accepts(keys, issuer, example.token())
    made_up = [example.token(headers={"kid": f"made up {number}"}) for number in range(20)]

    assert await refusal(keys, issuer, made_up[0]) == (
        "The token is signed with a key that its issuer does not have",
        False,
    )
    for token in made_up:
        assert await refusal(keys, issuer, token) == ("The token is signed with a key that is not known yet", True)
    assert example.requests[JWKS] == 2

    assert await accepts(keys, issuer, example.token())
    example.rotate()
    clock.advance(AGAIN)
    assert await accepts(keys, issuer, example.token())
    assert example.requests[JWKS] == 3


NOTHING_TO_USE = [
    IssuerResponse(500, b""),
    IssuerResponse(302, b"", {"Location": "/moved"}),
    IssuerResponse(200, b"<html>Welcome</html>"),
    IssuerResponse(200, b"{}"),
    IssuerResponse(200, b'{"keys": []}'),
    IssuerResponse(200, b'{"keys": [{"kty": "oct", "kid": "a", "k": "c2VjcmV0"}]}'),
    IssuerResponse(200, b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AQ", "y": "AQ", "d": "AQ"}]}'),
    IssuerResponse(200, b'{"keys": [' + b"[" * 100_000),
    IssuerResponse(200, b'{"keys": [], "x": "' + b"x" * 1024 * 1024 + b'"}'),
]


@pytest.mark.parametrize("answer", NOTHING_TO_USE, ids=range(len(NOTHING_TO_USE)))
async def test_a_key_set_that_lies_is_a_refusal_that_is_shown_and_ends(
    keys: Keys, example: ExampleIssuer, issuer: Issuer, clock: ManualClock, answer: IssuerResponse
) -> None:
    example.instead[JWKS] = answer

    for _ in range(3):
        assert await refusal(keys, issuer, example.token()) == (AWAY, True)
    fetched_on, ids, failure = keys.state(issuer)
    assert (fetched_on, ids) == (None, ())
    assert failure
    assert example.requests[JWKS] == 1

    del example.instead[JWKS]
    clock.advance(AGAIN)
    assert await accepts(keys, issuer, example.token())
    assert keys.state(issuer).failure == ""


async def test_keys_that_are_left_out_are_shown(keys: Keys, example: ExampleIssuer, issuer: Issuer) -> None:
    example.lie = json.dumps({"keys": [{"kty": "oct", "kid": "a", "k": "c2VjcmV0"}, *example.public_keys()]}).encode()

    assert await accepts(keys, issuer, example.token())

    assert keys.state(issuer).failure == "key a is left out: it is symmetric"
    assert "a" not in keys.state(issuer).ids


async def test_a_key_set_that_hangs_is_waited_for_once_and_not_for_long(
    example: ExampleIssuer, issuer: Issuer, clock: ManualClock, tmp_path: Path
) -> None:
    async with started(clock, tmp_path, seconds=2.0) as keys:
        example.hang = True

        refusals = await asyncio.gather(*[refusal(keys, issuer, example.token()) for _ in range(20)])
        assert set(refusals) == {(AWAY, True)}
        assert await refusal(keys, issuer, example.token()) == (AWAY, True)

        assert example.requests[JWKS] == 1
        assert keys.state(issuer).failure == "its keys cannot be had: it took too long"


async def test_an_issuer_that_goes_away_leaves_its_keys_good_for_a_day(
    keys: Keys, example: ExampleIssuer, issuer: Issuer, clock: ManualClock
) -> None:
    token = example.token()
    await accepts(keys, issuer, token)
    fetched_on, generation = clock.wall(), keys.generation(issuer)
    example.stop()

    clock.advance(GOOD - 1)
    await settled(keys, issuer)
    assert await accepts(keys, issuer, token)
    assert keys.generation(issuer) == generation
    assert keys.state(issuer).fetched_on == fetched_on
    assert keys.state(issuer).failure.startswith("its description cannot be had: ")
    assert await refusal(keys, issuer, example.token(headers={"kid": "new"})) == (
        "The token is signed with a key that is not known yet",
        True,
    )

    clock.advance(1)
    assert keys.generation(issuer) == NO_GENERATION
    assert await refusal(keys, issuer, token) == (AWAY, True)

    example.start()
    clock.advance(AGAIN)
    assert await accepts(keys, issuer, token)
    assert keys.generation(issuer) == generation  # they are the same keys


async def test_keys_that_moved_are_found_again(
    keys: Keys, example: ExampleIssuer, issuer: Issuer, clock: ManualClock
) -> None:
    await accepts(keys, issuer, example.token())
    example.instead[JWKS] = IssuerResponse(404, b"")
    moved = {"issuer": example.url, "jwks_uri": f"{example.url}/keys"}
    example.instead[DISCOVERY] = IssuerResponse(200, json.dumps(moved).encode())
    example.rotate()
    example.instead["/keys"] = IssuerResponse(200, json.dumps({"keys": example.public_keys()}).encode())

    assert await refusal(keys, issuer, example.token()) == (AWAY, True)
    clock.advance(AGAIN)
    assert await accepts(keys, issuer, example.token())


async def test_a_start_needs_no_issuer(
    example: ExampleIssuer, issuer: Issuer, clock: ManualClock, tmp_path: Path
) -> None:
    token = example.token()
    async with started(clock, tmp_path) as keys:
        await accepts(keys, issuer, token)
    fetched_on = clock.wall()
    example.stop()
    clock.advance(GOOD - 1)

    async with started(clock, tmp_path) as keys:
        assert await accepts(keys, issuer, token)
        assert keys.generation(issuer) != NO_GENERATION
        assert keys.state(issuer).fetched_on == fetched_on
        assert keys.state(issuer).failure
        clock.advance(1)
        assert await refusal(keys, issuer, token) == (AWAY, True)
    async with started(clock, tmp_path) as keys:
        assert await refusal(keys, issuer, token) == (AWAY, True)


async def test_a_start_asks_an_issuer_that_is_there(
    example: ExampleIssuer, issuer: Issuer, clock: ManualClock, tmp_path: Path
) -> None:
    token = example.token()
    async with started(clock, tmp_path) as keys:
        await accepts(keys, issuer, token)
    example.rotate()

    async with started(clock, tmp_path) as keys:
        assert (await refusal(keys, issuer, token))[0].startswith("The token is signed with a key")


async def test_a_file_of_the_future_is_good_for_a_day_at_most(
    example: ExampleIssuer, issuer: Issuer, clock: ManualClock, tmp_path: Path
) -> None:
    async with started(clock, tmp_path) as keys:
        await accepts(keys, issuer, example.token())
    example.stop()
    clock.step(-10 * GOOD)

    async with started(clock, tmp_path) as keys:
        assert await accepts(keys, issuer, example.token())
        clock.advance(GOOD)
        assert keys.generation(issuer) == NO_GENERATION


async def test_other_urls_mean_other_keys(
    example: ExampleIssuer, issuer: Issuer, clock: ManualClock, tmp_path: Path
) -> None:
    async with started(clock, tmp_path) as keys:
        await accepts(keys, issuer, example.token())
        with ExampleIssuer() as other:
            moved = replace(issuer, jwks_url=f"{other.url}/jwks")

            assert keys.generation(moved) == NO_GENERATION
            assert await accepts(keys, moved, other.token())
            assert (await refusal(keys, moved, example.token()))[0].startswith("The token is signed with a key")


async def test_what_is_forgotten_is_neither_in_memory_nor_in_the_file(
    example: ExampleIssuer, issuer: Issuer, clock: ManualClock, tmp_path: Path
) -> None:
    async with started(clock, tmp_path) as keys:
        await accepts(keys, issuer, example.token())
        generation = keys.generation(issuer)

        keys.forget(issuer)
        keys.forget(issuer)

        assert keys.state(issuer) == KeysState(None, (), "")
        assert keys.generation(issuer) == NO_GENERATION
        assert not list(tmp_path.iterdir())
        assert await accepts(keys, issuer, example.token())
        assert example.requests == {DISCOVERY: 2, JWKS: 2}
        assert keys.generation(issuer) not in (generation, NO_GENERATION)


async def test_keys_that_cannot_be_kept_are_used_all_the_same(
    example: ExampleIssuer, issuer: Issuer, clock: ManualClock, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()

    async with started(clock, tmp_path / "file") as keys:
        assert await accepts(keys, issuer, example.token())


@pytest.fixture
def kept(tmp_path: Path) -> KeyFiles:
    return KeyFiles(str(tmp_path / "issuers"))


@pytest.fixture
def found(example: ExampleIssuer) -> KeySet:
    return KeySet.of(example.public_keys())


def test_keys_are_read_as_they_were_written_and_are_for_the_owner_only(
    kept: KeyFiles, found: KeySet, issuer: Issuer, tmp_path: Path
) -> None:
    kept.write(issuer, found.keys, FETCHED_ON)

    assert kept.read(issuer) == StoredKeySet(found, FETCHED_ON)
    path = tmp_path / "issuers" / "example.json"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert os.listdir(path.parent) == ["example.json"]


def test_keys_of_another_url_are_not_those_of_the_issuer(kept: KeyFiles, found: KeySet, issuer: Issuer) -> None:
    kept.write(issuer, found.keys, FETCHED_ON)

    assert kept.read(replace(issuer, url="https://example.org")) is None
    assert kept.read(replace(issuer, jwks_url="https://example.org/jwks")) is None


def test_a_file_that_is_torn_or_nonsense_is_as_if_it_were_not_there(
    kept: KeyFiles, found: KeySet, issuer: Issuer, tmp_path: Path
) -> None:
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


def test_what_cannot_be_written_is_not_kept(found: KeySet, issuer: Issuer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("", str(tmp_path / "file" / "issuers")):
        kept = KeyFiles(folder)
        kept.write(issuer, found.keys, FETCHED_ON)
        assert kept.read(issuer) is None
        kept.remove(issuer)


def test_what_was_removed_is_gone(kept: KeyFiles, found: KeySet, issuer: Issuer) -> None:
    kept.write(issuer, found.keys, FETCHED_ON)
    kept.remove(issuer)

    assert kept.read(issuer) is None
