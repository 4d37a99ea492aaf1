"""Google's clients for Node, Go and Java while the service is killed: no loss, order kept, acknowledgements last.

The client for Python is in the campaign of a cluster (`tests.faults.cluster`), which also sees its requests.
"""

import asyncio
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from local_cluster.ports import free_port
from simulation.histories import parallel_scene as parallel
from simulation.histories.attempts import Publish
from simulation.histories.client import PROJECT
from simulation.histories.payload import ordering_key
from simulation.histories.workload import Publisher
from tests.acceptance.clients.google import HERE, OTHER_LANGUAGES, Language
from tests.faults import scene
from tests.faults.http_client import SMALL_SETTINGS, Target
from tests.faults.parallel.google import kinds_of
from tests.support.documents import environment
from tests.support.waiting import wait_until_async

pytestmark = [pytest.mark.acceptance, pytest.mark.faults, pytest.mark.long]

TOPIC = "google"
_, ONCE, KEYED = kinds_of(TOPIC)
KILLS = 5
ANSWERED_SECONDS = 120.0  # for a client to get on after a kill: some pause for long before they connect again

DRAIN_SECONDS = 120.0
"""Node's client always leases for a minute, and messages leased before a kill do not come sooner."""


class ClientEvent(NamedTuple):
    """One line of a program's output: it `received` or `confirmed` a message."""

    what: str
    subscription: str
    id: int
    name: str


@contextmanager
def run_worker(language: Language, folder: Path, address: str) -> Iterator[Callable[[], list[ClientEvent]]]:
    """Run a program until the block ends; yields a function that returns its output so far."""
    language.get(folder)
    file, command = language.receiver
    shutil.copy(HERE / file, folder)
    output, log = folder / "received.txt", folder / "log.txt"  # two files, so that no line is within another
    names = f"{PROJECT.rpartition('/')[2]} {KEYED.name} {ONCE.name}"
    here = environment(PUBSUB_EMULATOR_HOST=address, METADATA_SERVER_DETECTION="none", no_proxy="localhost")
    with output.open("wb") as file_of_output, log.open("wb") as file_of_log:
        process = subprocess.Popen(
            ["bash", "-euc", f"{command} {names}"],
            cwd=folder, env=here, stdin=subprocess.DEVNULL, stdout=file_of_output, stderr=file_of_log,
        )  # fmt: skip

    def read_events() -> list[ClientEvent]:
        text = output.read_text()
        assert process.poll() is None, text[-2000:] + log.read_text()[-2000:]
        lines = [line.split() for line in text.split("\n")[:-1]]  # the last one is not whole yet
        told = [line for line in lines if len(line) == 4 and line[0] in ("received", "confirmed")]
        return [ClientEvent(what, subscription, int(number), name) for what, subscription, number, name in told]

    try:
        yield read_events
    finally:
        process.kill()
        process.wait()


async def kill_while_used(target: Target, said: Callable[[], list[ClientEvent]], chance: random.Random) -> None:
    """Kill the service and start it again, each time while both subscriptions are worked on."""
    for _ in range(KILLS):
        before = len(said())
        await wait_until_async(
            lambda: {each.subscription for each in said()[before:]} == {KEYED.name, ONCE.name},  # noqa: B023  # called at once
            ANSWERED_SECONDS,
        )
        await asyncio.sleep(chance.uniform(0.5, 2))
        await target.kill()
        await target.start()


def repeated_ids(said: list[ClientEvent]) -> list[int]:
    confirmed: set[int] = set()
    found = []
    for each in said:
        if each.what == "confirmed":
            confirmed.add(each.id)
        elif each.subscription == ONCE.name and each.id in confirmed:
            found.append(each.id)
    return found


def in_order(said: list[ClientEvent]) -> bool:
    """Return whether the first deliveries of each ordering key came in order."""
    last: dict[str, int] = {}
    seen: set[int] = set()
    for each in said:
        if each.subscription == KEYED.name and each.id not in seen:
            seen.add(each.id)
            key = ordering_key(each.name)
            if each.id < last.get(key, -1):
                return False
            last[key] = each.id
    return True


@pytest.mark.parametrize("language", OTHER_LANGUAGES)
async def test_nothing_is_lost_while_the_service_is_killed(language: Language, tmp_path: Path) -> None:
    port, chance = free_port(), random.Random(1)
    environment = {**SMALL_SETTINGS, "AMS_PUBSUB_PORT": str(port), "AMS_PUBSUB_EMULATOR": "true"}
    async with scene.Stage(tmp_path / "data", {f"{TOPIC}-steady": TOPIC}, environment) as stage:
        admin, history = stage.admin, stage.history
        publisher = Publisher(stage.client("p"), history, chance, (TOPIC,), ((1, 10),), 0.2, ordered=True)
        await stage.prepare()
        await parallel.prepare(admin, (KEYED, ONCE))
        with run_worker(language, tmp_path, f"127.0.0.1:{port}") as told:
            async with asyncio.TaskGroup() as group:
                group.create_task(publisher.run())
                await kill_while_used(stage.target, told, chance)
                stage.traffic.stopping = True
            await parallel.wait_for_end(admin, (KEYED, ONCE), DRAIN_SECONDS)
            said = told()
        ending = await stage.ending()
        left = await parallel.ending(admin, (KEYED, ONCE))
    held = ending.topics[TOPIC]
    published = sum(len(each.ids) for each in history.attempts if isinstance(each, Publish))
    confirmed = sum(each.what == "confirmed" for each in said)
    received = len(said) - confirmed
    print(f"{published} published, {len(held)} held, {received} received, {confirmed} confirmed")
    assert history.violations(ending) == []
    assert (left.floors, left.letters) == ({KEYED.name: len(held), ONCE.name: len(held)}, [])
    for kind in (KEYED, ONCE):
        assert {(each.id, each.name) for each in said if each.subscription == kind.name} == set(held)
    assert repeated_ids(said) == []
    assert in_order(said)
    assert confirmed > 0
