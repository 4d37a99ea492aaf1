"""Deliveries and the ownership check of a running service, over TLS, against common webhook receivers."""

import base64
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ams
from ams.http.tls import self_signed
from tests.peers.receivers_table import PEERS, REASON, Delivery, Peer, RunningReceiver, run_receiver
from tests.support.pushed import Api
from tests.support.service import LiveService, live_service
from tests.support.waiting import wait_until_async

pytestmark = pytest.mark.acceptance

SLOW_RETRIES = {"type": "linear", "period": 600_000}  # a policy by which nothing is tried again during a test


class Certificate(NamedTuple):
    """The receivers' certificate, and the CA that signed it."""

    ca: str
    chain: str
    key: str


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate(*self_signed(str(tmp_path_factory.mktemp("pair"))))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, pair: Certificate) -> Iterator[LiveService]:
    environment = {"AMS_PUSH_ALLOW": "127.0.0.0/8", "AMS_PUSH_CA_FILE": pair.ca, "AMS_LOG_FORMAT": "json"}
    with live_service(tmp_path_factory.mktemp("service") / "data", environment=environment) as service:
        yield service


@pytest.fixture
async def api(service: LiveService) -> AsyncIterator[Api]:
    async with Api(service.base_url, service.token, f"P{uuid.uuid4().hex[:8]}") as api:
        await api.must("", {})
        yield api


def mark_peer(peer: Peer) -> Any:
    """Return a peer as a parameter; all but the first are marked for the long tests."""
    marks = peer.marks if peer is PEERS[0] else [*peer.marks, pytest.mark.long]
    return pytest.param(peer, marks=marks, id=peer.name)


@pytest.mark.parametrize("peer", [mark_peer(each) for each in PEERS])
async def test_receivers_get_messages(peer: Peer, service: LiveService, api: Api, pair: Certificate, tmp_path: Path):
    with run_receiver(peer, tmp_path, pair.chain, pair.key) as receiver:
        await it_has_to_show_the_right_hash(api, receiver)
        await single_messages_come_in_order(api, receiver, peer)
        await lists_come_also_where_each_connection_is_closed(api, receiver, peer)
        await what_it_refuses_is_shown_with_its_reason(api, receiver, service)


async def it_has_to_show_the_right_hash(api: Api, receiver: RunningReceiver) -> None:
    await make_subscription(api, receiver, "wrong", "/ok")
    receiver.show("another")

    answer = await api.ask("/subscriptions/wrong:verifyPushEndpoint", None)

    assert answer.status_code == 401
    assert answer.json()["error"]["message"] == "Endpoint verification failed.Wrong verification hash"


async def single_messages_come_in_order(api: Api, receiver: RunningReceiver, peer: Peer) -> None:
    await start_delivery(api, receiver, "single", "/ok", maxMessages=1, authorizationHeader={"type": "autogen"})
    for text in ("1", "2", "3"):
        await publish_texts(api, "single", text)
        came = receiver.wait("/ok", lambda came, text=text: len(came) == int(text))

    assert [json.loads(e.body)["message"]["data"] for e in came] == [encode_text(e) for e in ("1", "2", "3")]
    for each in came:
        has_the_headers_of_a_delivery(each)
    assert len({each.port for each in came}) == (1 if peer.keeps else 3)


async def lists_come_also_where_each_connection_is_closed(api: Api, receiver: RunningReceiver, peer: Peer) -> None:
    await start_delivery(api, receiver, "lists", "/close", maxMessages=10)
    for number in (1, 2):
        texts = [f"{number}-{each}-\u00e4\n" * 500 for each in range(5)]
        await publish_texts(api, "lists", *texts)
        came = receiver.wait("/close", lambda came, most=5 * number: len(items(came)) == most)

        assert [each["message"]["data"] for each in items(came)[-5:]] == [encode_text(each) for each in texts]
    for each in came:
        has_the_headers_of_a_delivery(each)
    if peer.closes:
        assert len({each.port for each in came}) == len(came)


async def what_it_refuses_is_shown_with_its_reason(api: Api, receiver: RunningReceiver, service: LiveService) -> None:
    await start_delivery(api, receiver, "refused", "/refuse", retryPolicy=SLOW_RETRIES)
    await publish_texts(api, "refused", "anything")
    receiver.wait("/refuse", bool)

    attempt = await get_attempt(api, "refused")

    assert attempt["status"] == 400
    assert attempt["error"].startswith("HTTP 400: ")
    assert is_short_and_clean(attempt["error"])
    status = await api.status("refused")
    assert "Could not send message, " in status
    assert is_short_and_clean(status.partition("message, ")[2])
    assert line_of(service, api, "refused")["reason"] == attempt["error"]


def line_of(service: LiveService, api: Api, name: str) -> Mapping[str, str]:
    """Return the log line about a subscription's failing delivery."""
    lines = (service.data.parent / f"{service.data.name}.stderr").read_text().splitlines()
    failing = [each for each in map(json.loads, lines) if each["event"] == "push.failing"]
    [line] = [each for each in failing if each["subscription"] == f"/{api.project}/subscriptions/{name}"]
    return line


async def get_attempt(api: Api, name: str) -> Mapping[str, object]:
    """Return a subscription's only delivery attempt, once it is recorded."""

    async def attempts() -> list[Mapping[str, object]]:
        told: Any = await api.must(f"/subscriptions/{name}:pushStatus", None, method="GET")
        return list(told["attempts"])

    [attempt] = await wait_until_async(attempts)
    return attempt


def is_short_and_clean(reason: str) -> bool:
    return REASON in reason and len(reason) <= 200 and reason.isprintable() and "<" not in reason


def has_the_headers_of_a_delivery(delivery: Delivery) -> None:
    names = Counter(name.lower() for name, _ in delivery.headers)
    assert set(names.values()) == {1}, names
    values = {name.lower(): value for name, value in delivery.headers}
    assert values["user-agent"] == f"ams/{ams.__version__}"
    assert values["content-type"] == "application/json"
    assert values["content-length"] == str(len(delivery.body.encode()))
    assert {"webhook-id", "webhook-timestamp", "ams-delivery-attempt"} <= values.keys()


def items(came: list[Delivery]) -> list[Mapping[str, Mapping[str, str]]]:
    return [item for each in came for item in json.loads(each.body)["messages"]]


def encode_text(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def publish_texts(api: Api, topic: str, *texts: str) -> None:
    await api.must(f"/topics/{topic}:publish", {"messages": [{"data": encode_text(each)} for each in texts]})


async def make_subscription(api: Api, receiver: RunningReceiver, name: str, path: str, **config: object) -> str:
    await api.must(f"/topics/{name}", None, method="PUT")
    push = {"type": "http_endpoint", "pushEndpoint": receiver.url(path)} | config
    body = {"topic": f"{api.project}/topics/{name}", "pushConfig": push}
    made = await api.must(f"/subscriptions/{name}", body, method="PUT")
    return str(made["pushConfig"]["verificationHash"])


async def start_delivery(api: Api, receiver: RunningReceiver, name: str, path: str, **config: object) -> None:
    receiver.show(await make_subscription(api, receiver, name, path, **config))
    await api.must(f"/subscriptions/{name}:verifyPushEndpoint", None)
