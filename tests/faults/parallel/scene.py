"""The parallel part of a campaign: a subscription of each kind, their drain, and what is there at the end."""

import asyncio
import time
from collections.abc import Sequence

from tests.faults.http_client import PROJECT, Client
from tests.faults.parallel.attempts import Letter
from tests.faults.parallel.laws import Parallel, ParallelEnding
from tests.faults.parallel.workload import Worker
from tests.faults.payload import name_of

TOPIC, LETTERS = "work", "letters"
DEADLINE, ATTEMPTS = 2, 5
"""Seconds of a lease, and deliveries of a message before it is put aside."""
RETRY = {"minimumBackoff": "0.05s", "maximumBackoff": "0.2s"}
KINDS = (
    Parallel("work-plain", TOPIC, DEADLINE, ATTEMPTS),
    Parallel("work-once", TOPIC, DEADLINE, ATTEMPTS, exactly_once=True),
    Parallel("work-keyed", TOPIC, DEADLINE, ATTEMPTS, ordered=True),
)
DRAIN_SECONDS = 60.0
"""After that what is not done is forgotten."""
_AUDIT = "letters-read"
_PATH = PROJECT.removeprefix("/v1/")


async def prepare(admin: Client, kinds: Sequence[Parallel] = KINDS) -> None:
    """Make the topic of dead letters, and the parallel subscriptions of topics that are there."""
    await admin.must(f"/topics/{LETTERS}", None, method="PUT")
    await admin.must(f"/subscriptions/{_AUDIT}", {"topic": f"{_PATH}/topics/{LETTERS}"}, method="PUT")
    for each in kinds:
        body: dict[str, object] = {
            "topic": f"{_PATH}/topics/{each.topic}",
            "type": "parallel",
            "ackDeadlineSeconds": int(each.deadline),
            "retryPolicy": RETRY,
            "deadLetterPolicy": {
                "deadLetterTopic": f"{_PATH}/topics/{LETTERS}",
                "maxDeliveryAttempts": each.most_attempts,
            },
            "enableExactlyOnceDelivery": each.exactly_once,
            "enableMessageOrdering": each.ordered,
        }
        await admin.must(f"/subscriptions/{each.name}", body, method="PUT")


async def drain(workers: Sequence[Worker], seconds: float = DRAIN_SECONDS) -> None:
    """Work until every subscription is at its end, or for so long."""
    async with asyncio.TaskGroup() as group:
        for each in workers:
            group.create_task(_drain(each, time.monotonic() + seconds))


async def _drain(worker: Worker, until: float) -> None:
    while time.monotonic() < until:
        if not await worker.work():
            offsets = await _offsets(worker.client, worker.subscription)
            if offsets["current"] == offsets["max"]:
                return
            await asyncio.sleep(0.05)


async def ending(admin: Client, kinds: Sequence[Parallel] = KINDS) -> ParallelEnding:
    """Read the dead letters, and where the subscriptions stand."""
    floors = {each.name: (await _offsets(admin, each.name))["current"] for each in kinds}
    return ParallelEnding(await _letters(admin), floors)


async def _letters(admin: Client) -> list[Letter]:
    found: list[Letter] = []
    path = f"/subscriptions/{_AUDIT}"
    while True:
        pulled = await admin.must(f"{path}:pull", {"maxMessages": "2000", "returnImmediately": "true"})
        received = pulled["receivedMessages"]
        if not received:
            return found
        for each in received:
            said = each["message"]["attributes"]
            name = name_of(said, each["message"]["data"])
            subscription = said["deadLetterSubscription"].rpartition("/")[2]
            found.append(Letter(subscription, int(said["deadLetterMessageId"]), name))
        await admin.must(f"{path}:acknowledge", {"ackIds": [received[-1]["ackId"]]})


async def _offsets(admin: Client, subscription: str) -> dict[str, int]:
    offsets = await admin.must(f"/subscriptions/{subscription}:offsets", None, method="GET")
    return {name: int(offsets[name]) for name in ("current", "max")}
