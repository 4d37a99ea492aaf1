"""Endpoints that hang, refuse, drip and never end cost the others nothing, and the service little memory."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest

from bench.kernel import anonymous_memory
from tests.faults.push.deliveries import message, read
from tests.support.pushed import Api, Endpoint, pushed
from tests.support.receiving import Receiving, received
from tests.support.service import LiveService, live_service
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.acceptance, pytest.mark.long]

GOOD, HANGING, REFUSING, DRIPPING, ENDLESS = 40, 6, 6, 6, 3
MESSAGES = 5
GOOD_SECONDS = 20.0
"""Far more than the good ones need; a bad one in their way would cost half a minute and more."""
ALLOWED_BYTES = 64 << 20
WORKING = "is currently active"
NO_DELIVERY = "Could not send message"


@dataclass(frozen=True)
class Scene:
    """A service with good endpoints and bad ones."""

    service: LiveService
    api: Api
    receiver: Receiving
    good: Sequence[Endpoint]
    bad: Sequence[Endpoint]


def _on(bases: Iterator[str], name: str, count: int) -> list[Endpoint]:
    """Take so many addresses for endpoints that behave as the path of that name."""
    return [Endpoint(f"{name}-{number}", f"{base}/{name}/{number}") for number, base in enumerate(islice(bases, count))]


def _trusted(folder: Path, *receivers: Receiving) -> dict[str, str]:
    """Return the settings by which a service delivers to these receivers."""
    both = folder / "trusted.pem"
    both.write_text("".join(Path(each.ca).read_text() for each in receivers))
    return {"AMS_PUSH_ALLOW": "127.0.0.0/8", "AMS_PUSH_CA_FILE": str(both)}


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    (tmp_path / "gone").mkdir()
    with contextlib.ExitStack() as stack, contextlib.ExitStack() as until_verified:
        receiver = stack.enter_context(received(tmp_path, more_ports=GOOD + HANGING + DRIPPING + ENDLESS))
        other = until_verified.enter_context(received(tmp_path / "gone", more_ports=REFUSING))
        bases = iter(receiver.more(""))
        good = _on(bases, "ok", GOOD)
        bad = [*_on(bases, "hang", HANGING), *_on(bases, "drip", DRIPPING), *_on(bases, "endless", ENDLESS)]
        refusing = _on(iter(other.more("")), "refusing", REFUSING)
        trusted = _trusted(tmp_path, receiver, other)
        service = stack.enter_context(live_service(tmp_path / "data", environment=trusted))
        async with Api(service.base_url, service.token) as api:
            await api.must("", {})
            await pushed(api, receiver.ca, [*good, *bad])
            await pushed(api, other.ca, refusing)
            until_verified.close()  # from now on nobody listens there
            receiver.forget()
            yield Scene(service, api, receiver, good, [*bad, *refusing])
        service.kill()  # an orderly end would wait for those that hang


async def _publish(scene: Scene, endpoints: Sequence[Endpoint], number: int) -> None:
    for each in endpoints:
        body = {"messages": [message(f"{each.name}-{number}")]}
        await scene.api.must(f"/topics/{each.of}:publish", body)


def _came(scene: Scene) -> list[str]:
    """Return the names of the messages that good endpoints got."""
    return [each.items[0].name for each in read(scene.receiver.requests("/ok/"))]


async def test_bad_endpoints_cost_nothing_but_their_own_state(scene: Scene) -> None:
    await _publish(scene, [*scene.good, *scene.bad], 0)
    before = anonymous_memory(scene.service.process.pid)
    for number in range(1, MESSAGES):
        await _publish(scene, [*scene.bad, *scene.good], number)

    await wait_until_async(lambda: len(_came(scene)) >= GOOD * MESSAGES, GOOD_SECONDS)
    assert sorted(_came(scene)) == sorted(f"{each.name}-{n}" for each in scene.good for n in range(MESSAGES))
    for each in scene.good:
        assert (await scene.api.status(each.name)).endswith(WORKING)
    assert anonymous_memory(scene.service.process.pid) - before < ALLOWED_BYTES

    # Those that hang are known as such only when their time is over.
    quick = [each for each in scene.bad if each.name.startswith(("refusing", "endless"))]

    async def said() -> bool:
        return all([NO_DELIVERY in await scene.api.status(each.name) for each in quick])

    await wait_until_async(said, GOOD_SECONDS)
    for each in scene.bad:
        offsets = await scene.api.must(f"/subscriptions/{each.name}:offsets", None, method="GET")
        assert (offsets["current"], offsets["max"]) == (0, MESSAGES)  # nothing is lost
