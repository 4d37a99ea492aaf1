"""What a history plays on: a project with topics and subscriptions, made before it and read when it is over."""

from collections.abc import Mapping
from typing import Any

from tests.faults.attempts import Ending, Held
from tests.faults.http_client import PROJECT, Client
from tests.faults.payload import held

_AUDIT = "{}-audit"
"""A subscription of each topic that nobody uses until the end, to read the topic from its beginning."""
_BATCH = "2000"


async def prepare(admin: Client, subscriptions: Mapping[str, str]) -> None:
    """Make the project, the topics and their subscriptions; `subscriptions` tells the topic of each."""
    await admin.must("", {})
    await prepare_topics(admin, subscriptions)


async def prepare_topics(
    admin: Client, subscriptions: Mapping[str, str], deadlines: Mapping[str, int] | None = None
) -> None:
    """Make the topics and their subscriptions in the project that is there; `deadlines` are in seconds."""
    for topic in _topics(subscriptions):
        await admin.must(f"/topics/{topic}", None, method="PUT")
    audits = {_AUDIT.format(topic): topic for topic in _topics(subscriptions)}
    for name, topic in {**subscriptions, **audits}.items():
        body: dict[str, object] = {"topic": f"{PROJECT.removeprefix('/v1/')}/topics/{topic}"}
        if deadlines and name in deadlines:
            body["ackDeadlineSeconds"] = deadlines[name]
        await admin.must(f"/subscriptions/{name}", body, method="PUT")


async def ending(admin: Client, subscriptions: Mapping[str, str]) -> Ending:
    """Read every topic from its beginning, and where the subscriptions stand."""
    topics = {topic: await _read(admin, topic) for topic in _topics(subscriptions)}
    return Ending(topics, {name: await _offset(admin, name) for name in subscriptions})


def _topics(subscriptions: Mapping[str, str]) -> list[str]:
    return sorted(set(subscriptions.values()))


async def _read(admin: Client, topic: str) -> list[Held]:
    path = f"/subscriptions/{_AUDIT.format(topic)}"
    await admin.must(f"{path}:modifyOffset", {"offset": 0})
    found: list[Held] = []
    while batch := await _pull(admin, path):
        found += [held(each) for each in batch]
        await admin.must(f"{path}:acknowledge", {"ackIds": [batch[-1]["ackId"]]})
    return found


async def _pull(admin: Client, path: str) -> list[dict[str, Any]]:
    document = await admin.must(f"{path}:pull", {"maxMessages": _BATCH, "returnImmediately": "true"})
    return list(document["receivedMessages"])


async def _offset(admin: Client, subscription: str) -> int:
    offsets = await admin.must(f"/subscriptions/{subscription}:offsets", None, method="GET")
    return int(offsets["current"])
