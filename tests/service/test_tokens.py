"""Administration of named tokens: docs/reference/tokens.md."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ams.access.admission import Admission, Caller
from ams.core.clock import ManualClock, Milliseconds
from ams.core.errors import Conflict, InvalidInput, NotAllowed, NotFound, RegistryUnavailable
from ams.core.names import TokenId, TokenName, UserName
from ams.core.supervisor import Supervisor
from ams.service import tokens as tokens_module
from ams.service.tokens import LATEST, Tokens, TokenUses
from ams.storage.registry.records import User, UserDetails
from ams.storage.registry.registry import Registry
from tests.support.administration import make_user, service

ANNA, CI = UserName("anna"), TokenName("ci")
HOUR = Milliseconds(3_600_000)


@pytest.fixture
def tokens(registry: Registry, clock: ManualClock) -> Tokens:
    return Tokens(registry, clock)


@pytest.fixture
async def anna(registry: Registry) -> User:
    return await make_user(registry, "anna")


async def by(registry: Registry, clock: ManualClock, token: str | None, user: str = "anna") -> Caller:
    return await Admission(registry, clock=clock).admit("tokens:create", token, None, {"user": user})


async def test_who_is_no_administrator_manages_no_token_of_one(tokens: Tokens, registry: Registry) -> None:
    """A roles file may let others manage tokens (17.3, U3)."""
    await make_user(registry, "root", None, "service_admin")
    await make_user(registry, "anna")
    helper = await make_user(registry, "helper", None, "admin_viewer")
    table = {"tokens:create": frozenset({"admin_viewer"})}
    caller = await Admission(registry, permissions=table).admit("tokens:create", helper.token, None, {"user": "root"})

    assert (await tokens.create(caller, ANNA, CI))[0].user == ANNA
    with pytest.raises(NotAllowed):
        await tokens.create(caller, UserName("root"), CI)
    assert (await tokens.create(caller, UserName("helper"), CI))[0].user == "helper"


async def test_who_was_renamed_manages_no_token_of_whoever_has_the_name_now(
    tokens: Tokens, registry: Registry, clock: ManualClock, anna: User
) -> None:
    """Another node may have given the name away since the user was let in as the one the path names."""
    caller = await by(registry, clock, anna.token)
    await registry.users.update(anna.id, UserDetails(name="hanna"), None)
    await make_user(registry, "anna")

    with pytest.raises(NotFound, match=r"^User doesn't exist$"):
        await tokens.create(caller, ANNA, CI)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"expires_on": 1_700_000_000_000}, "The token would have expired already"),
        ({"expires_on": LATEST + 1}, "The token would expire after the year 9999.*"),
        ({"wanted": [("tokens:create", "*")]}, "invalid action: tokens:create"),
        ({"wanted": [("users:refreshToken", "*")]}, "invalid action: users:refreshToken"),
    ],
)
async def test_what_cannot_be_is_refused(tokens: Tokens, registry: Registry, wanted: Any, told: str) -> None:
    await make_user(registry, "anna")

    with pytest.raises(InvalidInput, match=f"^{told}$"):
        await tokens.create(await service(registry), ANNA, CI, **wanted)
    assert (await tokens.create(await service(registry), ANNA, CI, expires_on=LATEST))[0].expires_on == LATEST


async def test_a_token_made_with_one_that_expires_expires_no_later(
    tokens: Tokens, registry: Registry, clock: ManualClock, anna: User
) -> None:
    _, text = await tokens.create(await by(registry, clock, anna.token), ANNA, CI, lifetime=HOUR)
    caller = await by(registry, clock, text)

    for later in (None, Milliseconds(clock.now + HOUR + 1)):
        with pytest.raises(InvalidInput, match=r"^The token would outlive the one it is made with"):
            await tokens.create(caller, ANNA, TokenName("later"), expires_on=later)
    made, _ = await tokens.create(caller, ANNA, TokenName("same"), lifetime=HOUR)

    assert made.expires_on == clock.now + HOUR


async def test_a_user_has_so_many_tokens(
    tokens: Tokens, registry: Registry, anna: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "MOST", 2)
    caller = await service(registry)
    for name in ("a", "b"):
        await tokens.create(caller, ANNA, TokenName(name))

    with pytest.raises(Conflict, match=r"^A user has at most 2 named tokens"):
        await tokens.create(caller, ANNA, TokenName("c"))


T = TokenId("t")


class Away:
    """A registry that is away until it is told otherwise."""

    def __init__(self) -> None:
        self.away = True
        self.meanwhile: Callable[[], None] = lambda: None
        """Called while a writing that fails is under way."""
        self.written: list[dict[TokenId, Milliseconds]] = []
        self.came = asyncio.Event()

    async def note_uses(self, uses: Mapping[TokenId, Milliseconds]) -> None:
        self.came.set()
        if self.away:
            self.meanwhile()
            raise RegistryUnavailable
        self.written.append(dict(uses))


async def test_what_cannot_be_written_now_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens_module, "ROUND_SECONDS", 0.001)
    tokens: Any = Away()
    uses = TokenUses(tokens)
    uses.note(T, Milliseconds(1))
    uses.note(TokenId("other"), Milliseconds(1))
    await uses.rounds.start(Supervisor())
    await tokens.came.wait()
    uses.note(T, Milliseconds(2))

    tokens.away = False
    await uses.rounds.close()

    assert [each for each in tokens.written if each] == [{T: 2, "other": 1}]


async def test_a_newer_use_is_not_lost_while_an_older_one_cannot_be_written() -> None:
    tokens: Any = Away()
    uses = TokenUses(tokens)
    tokens.meanwhile = lambda: uses.note(T, Milliseconds(5))
    uses.note(T, Milliseconds(1))
    with pytest.raises(RegistryUnavailable):
        await uses.flush()
    tokens.away = False

    await uses.flush()

    assert tokens.written == [{T: 5}]
