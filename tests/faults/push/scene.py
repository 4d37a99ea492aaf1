"""What deliveries are tested on: a project of subscriptions that are pushed to a receiver, each from its own topic."""

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.faults.attempts import Publish
from tests.faults.http_client import PROJECT, Client
from tests.faults.push.deliveries import POISON, Delivery, name_of, read
from tests.faults.push.laws import Story, violations
from tests.support.receiving import Receiving

REFERENCE = PROJECT.removeprefix("/v1/")
DEAD = "dead"
"""The topic that all dead letters go to."""
ATTEMPTS = 2
"""Refusals after which a message goes there."""
DONE_SECONDS = 90.0
"""The longest that deliveries may go on after the last kill: an endpoint is left alone for a minute at most."""
BATCH = "1000"


@dataclass(frozen=True)
class Pushed:
    """A subscription and its endpoint."""

    name: str
    """Of the subscription and of its topic."""
    max_messages: int
    milliseconds: int = 0
    """What the endpoint needs for an answer."""
    refuses: bool = False
    """Whether the endpoint refuses poison, which goes to the dead letter topic then."""

    @property
    def path(self) -> str:
        """Return the path of the endpoint."""
        return f"/refuse/{POISON}/{self.name}" if self.refuses else f"/slow/{self.milliseconds}/{self.name}"

    def config(self, receiver: Receiving) -> dict[str, Any]:
        """Return its push configuration."""
        wanted: dict[str, Any] = {
            "type": "http_endpoint",
            "pushEndpoint": receiver.url(self.path),
            "maxMessages": self.max_messages,
            "retryPolicy": {"type": "linear", "period": 50},
        }
        if self.refuses:
            topic = f"{REFERENCE}/topics/{DEAD}"
            wanted |= {"deadLetterTopic": topic, "maxDeliveryAttempts": ATTEMPTS}
        return wanted


async def prepare(admin: Client, receiver: Receiving, subscriptions: Iterable[Pushed]) -> None:
    """Make the project and all that is in it, and verify the endpoints: from then on it is delivered."""
    await admin.must("", {})
    await admin.must(f"/topics/{DEAD}", None, method="PUT")
    for each in subscriptions:
        await admin.must(f"/topics/{each.name}", None, method="PUT")
        await subscribe(admin, receiver, each)


async def subscribe(admin: Client, receiver: Receiving, pushed: Pushed) -> None:
    """Make a subscription and verify its endpoint."""
    path = f"/subscriptions/{pushed.name}"
    body = {"topic": f"{REFERENCE}/topics/{pushed.name}", "pushConfig": pushed.config(receiver)}
    await admin.must(path, body, method="PUT")
    shown = await admin.must(path, None, method="GET")
    receiver.show(shown["pushConfig"]["verificationHash"])
    await admin.must(f"{path}:verifyPushEndpoint", None)


async def all_delivered(admin: Client, subscriptions: Iterable[Pushed], seconds: float = DONE_SECONDS) -> None:
    """Return when everything is acknowledged; fail when that takes too long."""
    give_up = time.monotonic() + seconds
    waiting = {each.name for each in subscriptions}
    while waiting:
        assert time.monotonic() < give_up, f"not all was delivered after {seconds:g} s: {await _states(admin, waiting)}"
        for name in list(waiting):
            offsets = await admin.must(f"/subscriptions/{name}:offsets", None, method="GET")
            if offsets["current"] == offsets["max"]:
                waiting.remove(name)
        await asyncio.sleep(0.1)


async def _states(admin: Client, names: Iterable[str]) -> Sequence[str]:
    shown = [await admin.must(f"/subscriptions/{name}", None, method="GET") for name in names]
    return [str(each.get("pushStatus")) for each in shown]


async def stories(
    admin: Client,
    receiver: Receiving,
    subscriptions: Sequence[Pushed],
    breaks: Callable[[Pushed], int],
    publishes: Sequence[Publish],
) -> list[Story]:
    """Return all that is known of the subscriptions when everything is delivered; `publishes` are to their topics."""
    dead = await _dead_letters(admin)
    return [
        Story(
            each.name,
            deliveries_of(receiver, each),
            {int(found["messageId"]): name_of(found) for found in await messages(admin, each.name)},
            breaks(each),
            takes=each.milliseconds / 1000,
            dead=dead.get(each.name, ()),
            publishes=[publish for publish in publishes if publish.topic == each.name],
        )
        for each in subscriptions
    ]


def deliveries_of(receiver: Receiving, pushed: Pushed) -> list[Delivery]:
    """Return what came to the endpoint of a subscription."""
    came = read(receiver.requests(pushed.path))  # of all whose paths begin so
    return [each for each in came if each.subscription == pushed.name]


def broken(found: Iterable[Story]) -> list[str]:
    """Return all violations."""
    return [violation for each in found for violation in violations(each)]


async def messages(admin: Client, topic: str) -> list[dict[str, Any]]:
    """Read a topic from its beginning, by a subscription of our own."""
    path = f"/subscriptions/audit-{topic}"
    await admin.must(path, {"topic": f"{REFERENCE}/topics/{topic}"}, method="PUT")
    await admin.must(f"{path}:modifyOffset", {"offset": 0})
    found: list[dict[str, Any]] = []
    while batch := await _pull(admin, path):
        found += [each["message"] for each in batch]
        await admin.must(f"{path}:acknowledge", {"ackIds": [batch[-1]["ackId"]]})
    await admin.must(path, None, method="DELETE")
    return found


async def _pull(admin: Client, path: str) -> list[dict[str, Any]]:
    document = await admin.must(f"{path}:pull", {"maxMessages": BATCH, "returnImmediately": "true"})
    return list(document["receivedMessages"])


async def _dead_letters(admin: Client) -> Mapping[str, Sequence[int]]:
    """Return the ids of the messages in the dead letter topic, by subscription."""
    found: dict[str, list[int]] = {}
    for each in await messages(admin, DEAD):
        attributes = each["attributes"]
        assert POISON in base64.b64decode(each["data"]).decode(), json.dumps(attributes)
        subscription = attributes["deadLetterSubscription"].rpartition("/")[2]
        found.setdefault(subscription, []).append(int(attributes["deadLetterMessageId"]))
    return found
