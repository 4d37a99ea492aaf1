"""A project of subscriptions for tests of deliveries, each pushed to a receiver from its own topic."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from simulation.histories.attempts import Outcome, Publish
from simulation.histories.client import PROJECT, Client
from simulation.histories.payload import name_of
from simulation.histories.scene import is_at_end, read_all
from tests.faults.push.laws import POISON, Delivery, Story, count_repeats, read_deliveries, violations
from tests.support.receiving import Receiving
from tests.support.waiting import wait_until_async

REFERENCE = PROJECT.removeprefix("/v1/")
DEAD_LETTER_TOPIC = "dead"
ATTEMPTS = 2
DONE_SECONDS = 180.0
"""Maximum seconds of deliveries after the last kill: the backoff of an endpoint is a minute at most."""


@dataclass(frozen=True)
class PushedSubscription:
    name: str  # of the subscription and of its topic
    max_messages: int
    milliseconds: int = 0
    refuses: bool = False  # whether the endpoint refuses poison, which then goes to the dead letter topic

    @property
    def path(self) -> str:
        return f"/refuse/{POISON}/{self.name}" if self.refuses else f"/slow/{self.milliseconds}/{self.name}"

    def config(self, receiver: Receiving) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            "type": "http_endpoint", "pushEndpoint": receiver.url(self.path), "maxMessages": self.max_messages,
            "retryPolicy": {"type": "linear", "period": 50},
        }  # fmt: skip
        if self.refuses:
            topic = f"{REFERENCE}/topics/{DEAD_LETTER_TOPIC}"
            wanted |= {"deadLetterTopic": topic, "maxDeliveryAttempts": ATTEMPTS}
        return wanted


async def prepare(admin: Client, receiver: Receiving, subscriptions: Iterable[PushedSubscription]) -> None:
    """Create the project and its resources, and verify the endpoints, which starts deliveries."""
    await admin.must("", {})
    await admin.must(f"/topics/{DEAD_LETTER_TOPIC}", None, method="PUT")
    for each in subscriptions:
        await admin.must(f"/topics/{each.name}", None, method="PUT")
        await subscribe(admin, receiver, each)


async def subscribe(admin: Client, receiver: Receiving, pushed: PushedSubscription) -> None:
    path = f"/subscriptions/{pushed.name}"
    body = {"topic": f"{REFERENCE}/topics/{pushed.name}", "pushConfig": pushed.config(receiver)}
    await admin.must(path, body, method="PUT")
    receiver.show((await admin.must(path, None, method="GET"))["pushConfig"]["verificationHash"])
    await admin.must(f"{path}:verifyPushEndpoint", None)


async def all_delivered(admin: Client, pushed: Iterable[PushedSubscription], seconds: float = DONE_SECONDS) -> None:
    """Return when everything is acknowledged; fail after a timeout."""
    for each in pushed:
        await wait_until_async(partial(is_at_end, admin, each.name), seconds)


async def stories(
    admin: Client, receiver: Receiving, subscriptions: Sequence[PushedSubscription], kills: int,
    publishes: Sequence[Publish],
) -> list[Story]:  # fmt: skip
    """Return the history of each subscription after all deliveries; `publishes` are to their topics."""
    dead = await _dead_letters(admin)
    return [
        Story(
            each.name, deliveries_of(receiver, each),
            {
                int(found["messageId"]): name_of(found["attributes"], found["data"])
                for found in await messages(admin, each.name)
            },
            kills, takes=each.milliseconds / 1000, dead=dead.get(each.name, ()),
            publishes=[publish for publish in publishes if publish.topic == each.name],
        ) for each in subscriptions
    ]  # fmt: skip


def deliveries_of(receiver: Receiving, pushed: PushedSubscription) -> list[Delivery]:
    came = read_deliveries(receiver.requests(pushed.path))  # of all whose paths begin so
    return [each for each in came if each.subscription == pushed.name]


async def messages(admin: Client, topic: str) -> list[dict[str, Any]]:
    """Read a topic from its beginning, by its own subscription."""
    path = f"/subscriptions/audit-{topic}"
    await admin.must(path, {"topic": f"{REFERENCE}/topics/{topic}"}, method="PUT")
    await admin.must(f"{path}:modifyOffset", {"offset": 0})
    found = await read_all(admin, path)
    await admin.must(path, None, method="DELETE")
    return [each["message"] for each in found]


async def _dead_letters(admin: Client) -> Mapping[str, Sequence[int]]:
    """Return the ids of the messages in the dead letter topic, by subscription."""
    found: dict[str, list[int]] = {}
    for each in await messages(admin, DEAD_LETTER_TOPIC):
        attributes = each["attributes"]
        assert name_of(attributes, each["data"]).startswith(POISON), attributes
        subscription = attributes["deadLetterSubscription"].rpartition("/")[2]
        found.setdefault(subscription, []).append(int(attributes["deadLetterMessageId"]))
    return found


@dataclass
class PushResult:
    """Result of a campaign: one JSON line."""

    kills: int = 0
    seed: int | None = None
    violations: list[str] = field(default_factory=list)
    published: int = 0
    messages: int = 0
    deliveries: int = 0
    repeated: int = 0  # repeated deliveries: a kill came while one was in flight
    dead: int = 0
    slowest_s: float = 0.0  # seconds from a kill until every subscription had deliveries again
    seconds: float = 0.0

    def judge(self, found: Sequence[Story], publishes: Sequence[Publish]) -> None:
        self.violations = [violation for each in found for violation in violations(each)]
        self.published = sum(each.outcome is Outcome.DONE for each in publishes)
        self.messages = sum(len(each.topic) for each in found)
        self.deliveries = sum(len(each.deliveries) for each in found)
        self.repeated = sum(count_repeats(each.deliveries) for each in found)
        self.dead = sum(len(each.dead) for each in found)

    def line(self) -> str:
        numbers = {**vars(self), "slowest_s": round(self.slowest_s, 1), "seconds": round(self.seconds, 1)}
        return json.dumps(numbers | {"violations": len(self.violations)})
