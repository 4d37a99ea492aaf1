"""Tokens of deliveries in Google's form: one key for all nodes, tokens that are used again and renewed in time."""

from pathlib import Path

import jwt
import pytest

from ams.core.clock import ManualClock
from ams.core.google_push import GoogleForm
from ams.core.push_config import HTTP_ENDPOINT, PushConfig
from ams.service.push.assignment import Assignment
from ams.service.push.identity import LIVES_SECONDS, RENEWED_SECONDS, Claim, PushIdentity
from ams.storage.registry.registry import Registry
from ams.storage.registry.signing_keys import PUSH, SigningKey
from tests.service.push.test_assignment import make_topic, subscribe
from tests.support.administration import ENGINES, make_project, url_of

ACCOUNT, ISSUER, ENDPOINT = "a@P.iam.gserviceaccount.com", "https://ams.example", "https://receiver.example/in"


@pytest.fixture(params=ENGINES)
def registry_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty registry, on each database."""
    return url_of(request.param, tmp_path)


def config(audience: str = "", account: str = ACCOUNT) -> PushConfig:
    form = GoogleForm(service_account=account, audience=audience)
    return PushConfig(HTTP_ENDPOINT, ENDPOINT, verified=True, google=form)


async def said_by(identity: PushIdentity, token: str, audience: str) -> dict[str, object]:
    [key] = await identity.keys()
    options = {"verify_exp": False, "verify_iat": False}
    return dict(jwt.decode(token, jwt.PyJWK(key), ["RS256"], options, audience=audience, issuer=ISSUER))  # type: ignore[arg-type]


async def test_tokens_of_two_nodes_are_checked_with_one_key(registry: Registry) -> None:
    one, two = (PushIdentity(registry.signing_keys, ISSUER, ManualClock()) for _ in range(2))

    mine = await one.tokens([config(), config("me")])
    other = await two.tokens([config()])

    assert await one.keys() == await two.keys()
    assert set(mine) == {Claim(ACCOUNT, ENDPOINT), Claim(ACCOUNT, "me")}
    said = await said_by(one, other[Claim(ACCOUNT, ENDPOINT)], ENDPOINT)
    assert (said["email"], said["email_verified"], said["sub"]) == (ACCOUNT, True, ACCOUNT)


async def test_a_node_that_is_too_late_takes_the_key_that_is_there(registry: Registry) -> None:
    first, second = SigningKey("1", "one"), SigningKey("2", "two")

    assert await registry.signing_keys.find(PUSH) is None
    assert await registry.signing_keys.add(PUSH, first) == first
    assert await registry.signing_keys.add(PUSH, second) == first
    assert await registry.signing_keys.find(PUSH) == first


async def test_a_token_is_used_again_until_half_its_time_is_over(registry: Registry) -> None:
    clock = ManualClock()
    identity = PushIdentity(registry.signing_keys, ISSUER, clock)

    first = await identity.tokens([config()])
    clock.advance(1000 * (RENEWED_SECONDS - 1))
    assert await identity.tokens([config()]) == first
    clock.advance(1000)
    renewed = await identity.tokens([config()])

    assert renewed != first
    said = await said_by(identity, renewed[Claim(ACCOUNT, ENDPOINT)], ENDPOINT)
    assert said["exp"] == clock.wall() // 1000 + LIVES_SECONDS


async def test_no_key_is_made_where_no_token_is_asked_for(registry: Registry) -> None:
    identity = PushIdentity(registry.signing_keys, ISSUER, ManualClock())

    assert await identity.tokens([PushConfig(HTTP_ENDPOINT, ENDPOINT), config(account="")]) == {}
    assert await registry.signing_keys.find(PUSH) is None


async def test_a_target_comes_with_its_token_and_another_token_makes_no_other_target(registry: Registry) -> None:
    project = await make_project(registry)
    await make_topic(registry, project)
    await subscribe(registry, project, "one", config())
    clock = ManualClock()
    identity = PushIdentity(registry.signing_keys, ISSUER, clock)
    assignment = Assignment(registry, registry.push_leases, tokens=identity.tokens)

    [before] = await assignment.targets()
    clock.advance(1000 * RENEWED_SECONDS)
    [after] = await assignment.targets()

    assert before.identity_token
    assert after.identity_token not in ("", before.identity_token)
    assert before == after
    assert before.identity_token not in repr(before)
