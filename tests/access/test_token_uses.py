"""When named tokens were last used."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ams.access import token_uses
from ams.access.admission import Admission
from ams.access.token_uses import TokenUses
from ams.core.clock import ManualClock, Milliseconds
from ams.core.errors import RegistryUnavailable
from ams.core.names import TokenId, TokenName
from ams.storage.registry.registry import Registry
from tests.support.administration import make_user, open_registry

T = TokenId("t")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def registry(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Registry]:
    async with open_registry(tmp_path, clock) as opened:
        yield opened


async def test_the_last_use_is_written_at_the_end(registry: Registry, clock: ManualClock) -> None:
    root = await make_user(registry, "root", None, "service_admin")
    _, text = await registry.named_tokens.create(
        root.id, TokenName("ci"), expires_on=None, rights=None, created_by=None
    )
    uses = TokenUses(registry.named_tokens)
    admission = Admission(registry, clock=clock, note_use=uses.note)
    await uses.start()
    for _ in range(2):
        clock.advance(1000)
        await admission.admit("users:list", text)
    assert (await registry.named_tokens.of(root.id))[0].last_used is None

    await uses.close()

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
    monkeypatch.setattr(token_uses, "ROUND_SECONDS", 0.001)
    tokens: Any = Away()
    uses = TokenUses(tokens)
    uses.note(T, Milliseconds(1))
    uses.note(TokenId("other"), Milliseconds(1))
    await uses.start()
    await tokens.came.wait()
    uses.note(T, Milliseconds(2))

    tokens.away = None
    await uses.close()

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
    await uses.close()

    tokens.away = None
    await uses.close()

    assert tokens.written == [{T: 1}]
