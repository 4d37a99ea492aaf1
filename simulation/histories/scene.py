"""Topics and subscriptions of a history: created before it, read after it."""

from collections.abc import Mapping
from typing import Any

from simulation.histories.attempts import Ending, Held
from simulation.histories.client import Client
from simulation.histories.payload import read_lease

_AUDIT = "{}-audit"  # an unused subscription of each topic, to read all messages at the end
_BATCH = "2000"


async def prepare(admin: Client, subscriptions: Mapping[str, str]) -> None:
    await admin.must("", {})
    await prepare_topics(admin, subscriptions)


async def prepare_topics(
    admin: Client, subscriptions: Mapping[str, str], deadlines: Mapping[str, int] | None = None
) -> None:
    """Create the topics and their subscriptions in an existing project; `deadlines` in seconds."""
    for topic in _topics(subscriptions):
        await admin.must(f"/topics/{topic}", None, method="PUT")
    audits = {_AUDIT.format(topic): topic for topic in _topics(subscriptions)}
    for name, topic in {**subscriptions, **audits}.items():
        body: dict[str, object] = {"topic": f"{admin.resource}/topics/{topic}"}
        if deadlines and name in deadlines:
            body["ackDeadlineSeconds"] = deadlines[name]
        await admin.must(f"/subscriptions/{name}", body, method="PUT")


async def ending(admin: Client, subscriptions: Mapping[str, str]) -> Ending:
    topics = {topic: await _read_topic(admin, topic) for topic in _topics(subscriptions)}
    return Ending(topics, {name: (await offsets(admin, name))["current"] for name in subscriptions})


async def count_violations(admin: Client, ending: Ending) -> list[str]:
    """Return the topics whose counters differ from their messages."""
    found: list[str] = []
    for topic, messages in ending.topics.items():
        shown = await admin.must(f"/topics/{topic}:metrics", None, method="GET")
        counts = {each["metric"]: sum(point["value"] for point in each["timeseries"]) for each in shown["metrics"]}
        found += [
            f"counted: {name} of topic {topic} is {counts[name]}, and it holds {len(messages)}"
            for name in ("topic.number_of_messages", "topic.number_of_daily_messages")
            if counts[name] != len(messages)
        ]
    return found


def _topics(subscriptions: Mapping[str, str]) -> list[str]:
    return sorted(set(subscriptions.values()))


async def _read_topic(admin: Client, topic: str) -> list[Held]:
    path = f"/subscriptions/{_AUDIT.format(topic)}"
    await admin.must(f"{path}:modifyOffset", {"offset": 0})
    return [read_lease(each) for each in await read_all(admin, path)]


async def read_all(admin: Client, path: str) -> list[dict[str, Any]]:
    """Pull and acknowledge all messages of an ordered subscription; return them."""
    found: list[dict[str, Any]] = []
    while True:
        document = await admin.must(f"{path}:pull", {"maxMessages": _BATCH, "returnImmediately": "true"})
        batch = document["receivedMessages"]
        if not batch:
            return found
        found += batch
        await admin.must(f"{path}:acknowledge", {"ackIds": [batch[-1]["ackId"]]})


async def offsets(admin: Client, subscription: str) -> dict[str, int]:
    """Return the offset of a subscription (`current`), and the end of its topic (`max`)."""
    shown = await admin.must(f"/subscriptions/{subscription}:offsets", None, method="GET")
    return {name: int(shown[name]) for name in ("current", "max")}


async def is_at_end(admin: Client, subscription: str) -> bool:
    found = await offsets(admin, subscription)
    return found["current"] == found["max"]
