"""The parallel part of a campaign: a subscription of each kind, and their drain."""

import asyncio
import time
from collections.abc import Sequence

from simulation.histories.attempts import Letter
from simulation.histories.client import Client
from simulation.histories.parallel_laws import Parallel, ParallelEnding
from simulation.histories.payload import name_of
from simulation.histories.scene import is_at_end, read_all
from simulation.histories.scene import offsets as offsets_of
from simulation.histories.workload import Worker

TOPIC = "work"
LETTERS = "{}-letters"
DEADLINE, ATTEMPTS = 2, 5  # lease seconds; deliveries before a message becomes a dead letter
RETRY = {"minimumBackoff": "0.05s", "maximumBackoff": "0.2s"}
DRAIN_SECONDS = 180.0


def kinds_of(topic: str) -> tuple[Parallel, ...]:
    """Return a subscription of each kind: plain, exactly-once, keyed."""
    plain = Parallel(f"{topic}-plain", topic, DEADLINE, ATTEMPTS)
    once = plain._replace(name=f"{topic}-once", exactly_once=True)
    return plain, once, plain._replace(name=f"{topic}-keyed", ordered=True)


KINDS = kinds_of(TOPIC)


async def prepare(admin: Client, kinds: Sequence[Parallel] = KINDS) -> None:
    """Create parallel subscriptions of an existing topic, and its dead letter topic."""
    letters = _letters_of(kinds)
    await admin.must(f"/topics/{letters}", None, method="PUT")
    await admin.must(f"/subscriptions/{letters}", {"topic": f"{admin.resource}/topics/{letters}"}, method="PUT")
    for each in kinds:
        policy = {"deadLetterTopic": f"{admin.resource}/topics/{letters}", "maxDeliveryAttempts": each.most_attempts}
        body: dict[str, object] = {
            "topic": f"{admin.resource}/topics/{each.topic}", "type": "parallel",
            "ackDeadlineSeconds": int(each.deadline), "retryPolicy": RETRY, "deadLetterPolicy": policy,
            "enableExactlyOnceDelivery": each.exactly_once, "enableMessageOrdering": each.ordered,
        }  # fmt: skip
        if each.passes_over:
            body["filter"] = f'NOT hasPrefix(attributes.name, "{each.passes_over}")'
        await admin.must(f"/subscriptions/{each.name}", body, method="PUT")


async def drain(workers: Sequence[Worker], seconds: float = DRAIN_SECONDS) -> None:
    """Drain every subscription, at most for this long."""
    async with asyncio.TaskGroup() as group:
        for each in workers:
            group.create_task(_drain(each, time.monotonic() + seconds))


async def _drain(worker: Worker, until: float) -> None:
    while time.monotonic() < until:
        if not await worker.work():
            if await is_at_end(worker.client, worker.subscription):
                return
            await asyncio.sleep(0.05)


async def wait_for_end(admin: Client, kinds: Sequence[Parallel], seconds: float = DRAIN_SECONDS) -> None:
    """Wait until others have drained every subscription, at most for this long."""
    until = time.monotonic() + seconds
    for each in kinds:
        while time.monotonic() < until and not await is_at_end(admin, each.name):
            await asyncio.sleep(0.2)


async def ending(admin: Client, kinds: Sequence[Parallel] = KINDS) -> ParallelEnding:
    floors = {each.name: (await offsets_of(admin, each.name))["current"] for each in kinds}
    return ParallelEnding(await _letters(admin, _letters_of(kinds)), floors)


def _letters_of(kinds: Sequence[Parallel]) -> str:
    [topic] = {each.topic for each in kinds}
    return LETTERS.format(topic)


async def _letters(admin: Client, topic: str) -> list[Letter]:
    found: list[Letter] = []
    await admin.must(f"/subscriptions/{topic}:modifyOffset", {"offset": 0})
    for each in await read_all(admin, f"/subscriptions/{topic}"):
        said = each["message"]["attributes"]
        subscription = said["deadLetterSubscription"].rpartition("/")[2]
        found.append(Letter(subscription, int(said["deadLetterMessageId"]), name_of(said, each["message"]["data"])))
    return found
