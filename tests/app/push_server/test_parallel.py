"""Two `ams push` share parallel subscriptions: what one has begun it finishes, and the other goes on."""

import contextlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ams.app.push_server.program import Running, running
from ams.app.push_server.settings import PushSettings
from ams.client import Client, Message, wire
from ams.core.supervisor import Supervisor
from tests.support.receiving import Receiving
from tests.support.served import WORKER_TOKEN, Served, served
from tests.support.waiting import wait_until_async

POISON = b"poison"
COUNT = 300


@pytest.fixture
def service(tmp_path: Path, receiving: Receiving) -> Iterator[Served]:
    with served(
        tmp_path / "ams-data", push_worker_token=WORKER_TOKEN, push_inside=False,
        push_allow="127.0.0.0/8", push_ca_file=receiving.ca,
    ) as made:  # fmt: skip
        made.clock.advance(10_000)  # leases of an earlier life have ended
        yield made


def push_server(service: Served, receiving: Receiving) -> contextlib.AbstractAsyncContextManager[Running]:
    settings = PushSettings(
        endpoint=service.run.base_url, token=WORKER_TOKEN, port=0, ops_port=0, tls_enabled=False,
        push_allow="127.0.0.0/8", push_ca_file=receiving.ca,
    )  # fmt: skip
    return running(settings, Supervisor())


def subscribed(admin: Client, receiving: Receiving, path: str, **options: Any) -> None:
    push = wire.PushConfig(
        push_endpoint=receiving.url(path), max_outstanding=6, retry_policy=wire.RetryPolicy("linear", 50)
    )
    made = admin.call(wire.create_subscription("P", "S", "T", push=push, parallel=wire.ParallelOptions(**options)))
    receiving.show(made.push_config["verificationHash"])
    admin.call(wire.verify_push_endpoint("P", "S"))


def told(admin: Client) -> tuple[str, int | None, int | None, int | None]:
    """Return how the delivery goes, as its server said in its last heartbeat."""
    status = admin.call(wire.get_push_status("P", "S"))
    return status.state, status.backlog, status.dead, status.outstanding


@pytest.fixture
def admin(service: Served) -> Iterator[Client]:
    with Client(service.run.base_url, service.token) as made:
        made.call(wire.create_project("P"))
        made.project("P").topic("T").create()
        made.project("P").topic("L").create()
        yield made


@pytest.mark.long
async def test_each_message_is_delivered_once_though_a_server_stops_in_the_middle(
    service: Served, admin: Client, receiving: Receiving
) -> None:
    at_once = wire.RetryBackoff("0s", "0s")
    subscribed(
        admin, receiving, "/slow/30/refuse/poison", enable_message_ordering=True,
        dead_letter_policy=wire.DeadLetterPolicy("L", 5), retry_policy=at_once,
    )  # fmt: skip
    messages = [
        Message(POISON if each == 7 else b"%d" % each, ordering_key=f"k{each % 10}" if each % 3 else "")
        for each in range(COUNT)
    ]
    admin.project("P").topic("T").publish(messages)
    subscription = admin.project("P").subscription("S")

    async with contextlib.AsyncExitStack() as one, contextlib.AsyncExitStack() as other:
        servers = [(stack, await stack.enter_async_context(push_server(service, receiving))) for stack in (one, other)]
        await wait_until_async(lambda: len(receiving.requests("/slow")) > COUNT // 6)
        (busy,) = [stack for stack, server in servers if server.workers.held()]
        await busy.aclose()
        assert subscription.offsets().current < COUNT
        await wait_until_async(lambda: subscription.offsets().current == COUNT)
        admin.project("P").topic("T").publish([Message(b"later")])
        await wait_until_async(lambda: subscription.offsets().current == COUNT + 1)
        await wait_until_async(lambda: told(admin) == ("active", 0, 1, 0))

    came = [(each.headers, json.loads(each.body)["message"]) for each in receiving.requests("/slow")]
    times = Counter(int(message["messageId"]) for _, message in came)
    assert times == {each: 5 if each == 7 else 1 for each in range(COUNT + 1)}
    assert {each["ams-delivery-attempt"] for each, message in came if message["messageId"] != "7"} == {"1"}
    by_key = defaultdict(list)
    for _, message in came:
        by_key[message.get("orderingKey", "")].append(int(message["messageId"]))
    assert all(numbers == sorted(numbers) for key, numbers in by_key.items() if key)
    assert 2 <= receiving.numbers().most_at_once <= 6
