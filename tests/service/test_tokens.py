"""Administration of named tokens: docs/reference/tokens.md."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ams.access.admission import Admission, Caller
from ams.core.clock import ManualClock, Milliseconds
from ams.core.errors import AlreadyExists, Conflict, InvalidInput, NotAllowed, NotFound, RegistryUnavailable
from ams.core.names import TokenId, TokenName, UserName
from ams.core.rights import Right
from ams.core.supervisor import Supervisor
from ams.service import tokens as tokens_module
from ams.service.tokens import LATEST, Tokens, TokenUses
from ams.storage.registry.records import User, UserDetails
from ams.storage.registry.registry import Registry
from tests.support.administration import administrator, make_user, service

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


async def test_a_token_is_made_shown_without_its_text_and_revoked(
    tokens: Tokens, registry: Registry, clock: ManualClock, anna: User
) -> None:
    caller = await by(registry, clock, anna.token)
    wanted = [("topics:publish", "projects/P/topics/garden")]

    made, text = await tokens.create(caller, ANNA, CI, lifetime=HOUR, wanted=wanted)

    assert (made.name, made.user, made.created_by) == (CI, ANNA, ANNA)
    assert made.expires_on == clock.now + HOUR
    assert made.rights == (Right(*wanted[0]),)
    assert len(text) == 64
    assert await tokens.show(caller, ANNA, CI) == made
    assert list(await tokens.list(caller, ANNA)) == [made]

    await tokens.revoke(caller, ANNA, CI)

    assert list(await tokens.list(caller, ANNA)) == []
    for again in (tokens.show(caller, ANNA, CI), tokens.revoke(caller, ANNA, CI)):
        with pytest.raises(NotFound, match=r"^Token doesn't exist$"):
            await again


async def test_an_administrator_manages_the_tokens_of_all(tokens: Tokens, registry: Registry, anna: User) -> None:
    for caller in (await administrator(registry), await service(registry)):
        made, _ = await tokens.create(caller, ANNA, CI)
        assert (made.expires_on, made.rights, made.created_by) == (None, None, caller.name)
        with pytest.raises(AlreadyExists, match=r"^Token already exists$"):
            await tokens.create(caller, ANNA, CI)
        await tokens.revoke(caller, ANNA, CI)
        with pytest.raises(NotFound, match=r"^User doesn't exist$"):
            await tokens.list(caller, UserName("nobody"))


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


async def test_a_token_may_last_until_the_last_second_that_can_be_written(
    tokens: Tokens, registry: Registry, anna: User
) -> None:
    made, _ = await tokens.create(await administrator(registry), ANNA, CI, expires_on=LATEST)

    assert made.expires_on == LATEST


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
        ({"lifetime": 0}, "The token would have expired already"),
        ({"lifetime": -1}, "The token would have expired already"),
        ({"expires_on": LATEST + 1}, "The token would expire after the year 9999.*"),
        ({"lifetime": 10**30}, "The token would expire after the year 9999.*"),
        ({"expires_on": 1_800_000_000_000, "lifetime": 1}, "Give expires_on or expires_in, not both"),
        ({"wanted": []}, "A token is good for something.*"),
        ({"wanted": [("topics:dance", "*")]}, "invalid action: topics:dance"),
        ({"wanted": [("tokens:create", "*")]}, "invalid action: tokens:create"),
        ({"wanted": [("users:refreshToken", "*")]}, "invalid action: users:refreshToken"),
        ({"wanted": [("*", "projects/P/topics")]}, "invalid resource: projects/P/topics"),
        ({"wanted": [("*", f"projects/P/topics/t{n}") for n in range(101)]}, "A token has at most 100 rights"),
    ],
)
async def test_what_cannot_be_is_refused(tokens: Tokens, registry: Registry, wanted: Any, told: str) -> None:
    await make_user(registry, "anna")

    with pytest.raises(InvalidInput, match=f"^{told}$"):
        await tokens.create(await service(registry), ANNA, CI, **wanted)


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


async def test_the_tokens_of_a_deleted_user_are_dead(
    tokens: Tokens, registry: Registry, clock: ManualClock, anna: User
) -> None:
    _, text = await tokens.create(await service(registry), ANNA, CI)
    assert (await by(registry, clock, text)).name == "anna"

    await registry.users.delete(anna.id)

    assert await Admission(registry).user_of(text) is None


T = TokenId("t")


async def test_the_last_use_is_written_at_the_end(registry: Registry, clock: ManualClock) -> None:
    root = await make_user(registry, "root", None, "service_admin")
    _, text = await registry.named_tokens.create(
        root.id, TokenName("ci"), expires_on=None, rights=None, created_by=None
    )
    uses = TokenUses(registry.named_tokens)
    admission = Admission(registry, clock=clock, note_use=uses.note)
    await uses.rounds.start(Supervisor())
    for _ in range(2):
        clock.advance(1000)
        await admission.admit("users:list", text)
    assert (await registry.named_tokens.of(root.id))[0].last_used is None

    await uses.rounds.close()

    assert (await registry.named_tokens.of(root.id))[0].last_used == clock.now


class Away:
    """A registry that is away until it is told otherwise."""

    def __init__(self) -> None:
        self.away: Exception | None = RegistryUnavailable()
        self.meanwhile: Callable[[], None] = lambda: None
        """Called while a writing that fails is under way."""
        self.written: list[dict[TokenId, Milliseconds]] = []
        self.came = asyncio.Event()

    async def note_uses(self, uses: Mapping[TokenId, Milliseconds]) -> None:
        self.came.set()
        if self.away:
            self.meanwhile()
            raise self.away
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

    tokens.away = None
    await uses.rounds.close()

    assert [each for each in tokens.written if each] == [{T: 2, "other": 1}]


async def test_a_newer_use_is_not_lost_while_an_older_one_cannot_be_written() -> None:
    tokens: Any = Away()
    uses = TokenUses(tokens)
    tokens.meanwhile = lambda: uses.note(T, Milliseconds(5))
    uses.note(T, Milliseconds(1))
    with pytest.raises(RegistryUnavailable):
        await uses.flush()
    tokens.away = None

    await uses.flush()

    assert tokens.written == [{T: 5}]


async def test_a_defect_does_not_end_the_noting() -> None:
    tokens: Any = Away()
    tokens.away = ZeroDivisionError("a defect")
    uses = TokenUses(tokens)
    uses.note(T, Milliseconds(1))
    await uses.rounds.close()

    tokens.away = None
    await uses.rounds.close()

    assert tokens.written == [{T: 1}]
