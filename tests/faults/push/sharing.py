"""Processes that share the delivery of many subscriptions: one after the other is killed, and the others take over.

The processes are `ams push` beside one service, or the nodes of a cluster; they coordinate by leases only.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Protocol

from local_cluster.processes import Process
from simulation.histories.attempts import Facts, Outcome, Publish
from simulation.histories.client import Client
from simulation.histories.payload import message
from tests.faults.push import scene
from tests.faults.push.scene import PushedSubscription, PushResult
from tests.support.pushed import Api
from tests.support.receiving import Receiving, run_receiver
from tests.support.service import live_service
from tests.support.waiting import wait_until_async

SUBSCRIPTIONS = tuple(PushedSubscription(f"shared-{number}", max_messages=10, milliseconds=20) for number in range(12))
PUBLISH_SECONDS = 0.1
CALM_SECONDS = 2.5  # between two kills: the next heartbeats balance the shares
GOES_ON_SECONDS = 20.0
"""Maximum seconds until others take over after a kill; ten are promised, but the machine may be busy."""
START_SECONDS = 60.0
FEW_DELIVERIES = 3


TOKEN = "the-token-of-the-push-worker"
SETTINGS = {"AMS_PUSH_INSIDE": "false", "AMS_PUSH_WORKER_TOKEN": TOKEN, "AMS_PUSH_ALLOW": "127.0.0.0/8"}


class Holder(Protocol):
    """A process that delivers: `start` returns when it works, and `kill` acts like a power cut."""

    def start(self) -> None: ...
    def kill(self) -> None: ...


class PushProcess:
    """`ams push` as its own process that can be killed and restarted."""

    def __init__(self, name: str, folder: Path, endpoint: str, token: str, receiver: Receiving) -> None:
        command = [sys.executable, "-m", "ams.cli.main", "push", "--port", "0", "--ops-port", "0", "--no-tls-enabled"]
        self._process = Process(name, command, folder / f"{name}.log")
        self._process.environment = {
            "PYTHONUNBUFFERED": "1", "PYTHONPATH": ":".join(each for each in sys.path if each),
            "AMS_ENDPOINT": endpoint, "AMS_TOKEN": token, "AMS_PUSH_ALLOW": "127.0.0.0/8",
            "AMS_PUSH_CA_FILE": receiver.ca,
        }  # fmt: skip

    def start(self) -> None:
        self._process.start()
        self._process.wait_said("ready ", START_SECONDS)

    def kill(self) -> None:
        self._process.kill()


@dataclass
class Sharing:
    """The publisher and the killer; `client` uses a service that is never killed."""

    client: Client
    receiver: Receiving
    holders: Sequence[Holder]
    found: PushResult = field(default_factory=PushResult)
    _publishes: list[Publish] = field(default_factory=list)
    _stopping: bool = False

    async def run(self, kills: int, *, again: bool = False) -> PushResult:
        """Kill so many of the holders, one after the other, and check the deliveries; `again` restarts them."""
        await scene.prepare(self.client, self.receiver, SUBSCRIPTIONS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._publish())
            try:
                await self._all_go_on()
                for holder in islice(cycle(self.holders), kills):
                    await asyncio.sleep(CALM_SECONDS)
                    await self._kill(holder)
                    if again:
                        await asyncio.to_thread(holder.start)
            finally:
                self._stopping = True
        await scene.all_delivered(self.client, SUBSCRIPTIONS)
        stories = await scene.stories(self.client, self.receiver, SUBSCRIPTIONS, kills, self._publishes)
        self.found.judge(stories, self._publishes)
        return self.found

    async def _kill(self, holder: Holder) -> None:
        await asyncio.to_thread(holder.kill)
        killed = time.monotonic()
        await self._all_go_on()
        self.found.kills += 1
        self.found.slowest_s = max(self.found.slowest_s, time.monotonic() - killed)

    async def _all_go_on(self) -> None:
        """Return when every subscription has had a few new deliveries."""
        before = await self._counts()

        async def go_on() -> bool:
            return all(count >= before[path] + FEW_DELIVERIES for path, count in (await self._counts()).items())

        await wait_until_async(go_on, GOES_ON_SECONDS)

    async def _counts(self) -> Mapping[str, int]:
        by_path = (await asyncio.to_thread(self.receiver.numbers)).by_path
        return {each.path: by_path.get(each.path, 0) for each in SUBSCRIPTIONS}

    async def _publish(self) -> None:
        number = 0
        while not self._stopping:
            for each in SUBSCRIPTIONS:
                await self._publish_one(each.name, f"{each.name}-{number}")
            number += 1
            await asyncio.sleep(PUBLISH_SECONDS)

    async def _publish_one(self, topic: str, name: str) -> None:
        began = time.monotonic()
        answer = await self.client.must(f"/topics/{topic}:publish", {"messages": [message(name)]})
        ids = tuple(int(each) for each in answer["messageIds"])
        facts = Facts(request=name, started=began, ended=time.monotonic(), outcome=Outcome.DONE)
        self._publishes.append(Publish(**facts, topic=topic, names=(name,), ids=ids))


async def beside_a_service(folder: Path, processes: int, kills: int, *, again: bool = False) -> PushResult:
    """Let so many `ams push` share the subscriptions of one service, and kill some of them."""
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(run_receiver(folder))
        settings = SETTINGS | {"AMS_PUSH_CA_FILE": receiver.ca}
        service = stack.enter_context(live_service(folder / "data", environment=settings))
        holders = [PushProcess(f"push-{n}", folder, service.base_url, TOKEN, receiver) for n in range(processes)]
        for each in holders:
            stack.callback(each.kill)
        await asyncio.gather(*(asyncio.to_thread(each.start) for each in holders))
        async with Api(service.base_url, service.token) as api:
            return await Sharing(api, receiver, holders).run(kills, again=again)
