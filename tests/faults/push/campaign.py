"""Kills the service again and again while it delivers, and checks the receiver's deliveries.

`python -m tests.faults.push.campaign --kills N --seed S` (or `make faults-push N=50`) shows progress, and prints the
result in one JSON line. Then three `ams push` share the work beside a service (`sharing`). They are killed in turn and
restarted, a fifth as often, and print another line. The exit code is 1 when a law was broken (`laws`); then it keeps
the data folder, and prints its path.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from simulation.histories.attempts import Publish
from simulation.histories.payload import message
from tests.faults.http_client import SMALL_SETTINGS, HttpClient, Target, Traffic
from tests.faults.push import scene
from tests.faults.push.laws import POISON
from tests.faults.push.scene import PushedSubscription, PushResult
from tests.faults.push.sharing import beside_a_service
from tests.faults.reporting import end_campaign, say
from tests.support.receiving import Receiving, run_receiver

SUBSCRIPTIONS = (
    PushedSubscription("ones", max_messages=1, milliseconds=5),
    PushedSubscription("tens", max_messages=10, milliseconds=20),
    PushedSubscription("many", max_messages=100, milliseconds=300),
    PushedSubscription("picky", max_messages=10, refuses=True),
)  # fmt: skip
MESSAGES_PER_POISON = 20
PUBLISH_SECONDS = 0.05
MESSAGES_PER_PUBLISH = 5  # messages of a publish; the endpoint that takes one at a time always has a backlog
CALM_REQUESTS = (4, 25)
CALM_SECONDS = 20.0
MOMENT = 0.03
SHARED_PART = 5


class PushCampaign:
    def __init__(self, folder: Path, receiver: Receiving, kills: int, seed: int) -> None:
        self._receiver = receiver
        self._result = PushResult(kills, seed)
        self._random = random.Random(seed)
        environment = SMALL_SETTINGS | {"AMS_PUSH_ALLOW": "127.0.0.0/8", "AMS_PUSH_CA_FILE": receiver.ca}
        self._target = Target(folder / "data", environment)
        self._traffic = Traffic()
        self._publishes: list[Publish] = []

    async def run(self) -> PushResult:
        began = time.monotonic()
        admin = self._client("admin")
        try:
            await self._target.start()
            await scene.prepare(admin, self._receiver, SUBSCRIPTIONS)
            await self._kill_while_delivering()
            say("waiting for the rest")
            await scene.all_delivered(admin, SUBSCRIPTIONS)
            found = await scene.stories(admin, self._receiver, SUBSCRIPTIONS, self._result.kills, self._publishes)
            self._result.judge(found, self._publishes)
            self._result.violations += self._traffic.violations()
        finally:
            admin.close()
            await self._target.stop()
        self._result.seconds = time.monotonic() - began
        return self._result

    async def _kill_while_delivering(self) -> None:
        async with asyncio.TaskGroup() as group:
            for each in SUBSCRIPTIONS:
                group.create_task(self._publish(each))
            for number in range(self._result.kills):
                await self._calm()
                await self._target.kill()
                await self._target.start()
                self._show(number + 1)
            await self._calm()
            self._traffic.stopping = True

    async def _calm(self) -> None:
        """Return soon after some deliveries have come, right after one more."""
        for more in (self._random.randint(*CALM_REQUESTS), 1):
            wanted, give_up = self._count() + more, time.monotonic() + CALM_SECONDS
            while self._count() < wanted and time.monotonic() < give_up:
                await asyncio.sleep(0.002)
        await asyncio.sleep(self._random.uniform(0, MOMENT))

    def _count(self) -> int:
        return self._receiver.numbers().requests

    async def _publish(self, pushed: PushedSubscription) -> None:
        client = self._client(f"to-{pushed.name}")
        number = 0
        while client.goes_on:
            names = [self._name(pushed, number + each) for each in range(MESSAGES_PER_PUBLISH)]
            number += MESSAGES_PER_PUBLISH
            body = {"messages": [message(name) for name in names]}
            tried = await client.attempt(client.next_request(), f"/topics/{pushed.name}:publish", body)
            ids = tuple(int(each) for each in tried.document["messageIds"]) if tried.is_done else ()
            self._publishes.append(Publish(**tried.facts, topic=pushed.name, names=tuple(names), ids=ids))
            await asyncio.sleep(PUBLISH_SECONDS)
        client.close()

    def _name(self, pushed: PushedSubscription, number: int) -> str:
        is_poison = pushed.refuses and (number == 0 or self._random.random() < 1 / MESSAGES_PER_POISON)
        return f"{POISON if is_poison else pushed.name}-{number}"

    def _client(self, name: str) -> HttpClient:
        return HttpClient(name, self._target, self._traffic)

    def _show(self, number: int) -> None:
        kills = self._result.kills
        if number % max(1, kills // 20) == 0 or number == kills:
            say(f"kill {number} of {kills}: {self._count()} requests came so far")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.push.campaign", description=__doc__)
    parser.add_argument("--kills", type=int, default=50, metavar="N")
    seed = random.randrange(2**32)
    parser.add_argument("--seed", type=int, default=seed, metavar="S", help="repeats the campaign's decisions")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ams-faults-push-"))
    say(f"seed {options.seed}, data in {folder}")
    with run_receiver(folder) as receiver:
        result = asyncio.run(PushCampaign(folder, receiver, options.kills, options.seed).run())
    print(result.line(), flush=True)
    kills = 1 + options.kills // SHARED_PART
    say(f"three push servers beside a service; one after the other is killed, {kills} times in all")
    (folder / "shared").mkdir()
    shared = asyncio.run(beside_a_service(folder / "shared", processes=3, kills=kills, again=True))
    print(shared.line(), flush=True)
    return end_campaign(folder, [*result.violations, *shared.violations])


if __name__ == "__main__":
    sys.exit(main())
