"""Parallel subscriptions on two nodes: any of them may be asked, one of them has the leases.

The nodes are in this process, over a real PostgreSQL and a real Kafka; those that are killed are processes.
"""

import base64
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import httpx
import pytest

from cluster.certificates import Authority
from tests.cluster.nodes import node_served, processes, shared_settings
from tests.support.served import SERVICE_TOKEN, Served

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

Client = httpx.Client
_numbers = count()


def client_of(url: str) -> Client:
    headers = {"x-api-key": SERVICE_TOKEN}
    return httpx.Client(base_url=f"{url}/v1/projects", headers=headers, timeout=20, verify=False)


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return shared_settings()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, str]) -> Iterator[tuple[Served, Served]]:
    folder = tmp_path_factory.mktemp("nodes")
    with node_served(folder / "one", settings) as one, node_served(folder / "two", settings) as two:
        with client_of(one.run.base_url) as client:
            client.post("/P", json={}).raise_for_status()
        yield one, two


@pytest.fixture
def one(nodes: tuple[Served, Served]) -> Iterator[Client]:
    with client_of(nodes[0].run.base_url) as client:
        yield client


@pytest.fixture
def two(nodes: tuple[Served, Served]) -> Iterator[Client]:
    with client_of(nodes[1].run.base_url) as client:
        yield client


@pytest.fixture
def sub(one: Client) -> str:
    """The path of a parallel subscription of its own."""
    return make(one)


def make(client: Client, **options: object) -> str:
    name = f"s{next(_numbers)}"
    client.put(f"/P/topics/{name}").raise_for_status()
    asked = {"topic": f"projects/P/topics/{name}", "type": "parallel", **options}
    client.put(f"/P/subscriptions/{name}", json=asked).raise_for_status()
    return f"/P/subscriptions/{name}"


def publish(client: Client, sub: str, *data: str) -> None:
    messages = [{"data": base64.b64encode(each.encode()).decode()} for each in data]
    client.post(f"{sub.replace('subscriptions', 'topics')}:publish", json={"messages": messages}).raise_for_status()


def pulled(answer: httpx.Response) -> dict[str, str]:
    """Return what a pull gave: data, and the id to acknowledge it by."""
    found = answer.raise_for_status().json()["receivedMessages"]
    return {base64.b64decode(each["message"]["data"]).decode(): each["ackId"] for each in found}


def pull(client: Client, sub: str, most: int = 100, *, wait: bool = False) -> dict[str, str]:
    body = {"maxMessages": str(most), "returnImmediately": "false" if wait else "true"}
    return pulled(client.post(f"{sub}:pull", json=body))


def acknowledge(client: Client, sub: str, *ids: str) -> httpx.Response:
    return client.post(f"{sub}:acknowledge", json={"ackIds": list(ids)})


def offsets(client: Client, sub: str) -> int:
    return int(client.get(f"{sub}:offsets").raise_for_status().json()["current"])


def test_messages_pulled_on_either_node_are_leased_once(one: Client, two: Client, sub: str) -> None:
    publish(one, sub, "a", "b", "c", "d")
    first, second = pull(one, sub, 2), pull(two, sub, 2)
    assert sorted([*first, *second]) == ["a", "b", "c", "d"]
    assert pull(one, sub) == pull(two, sub) == {}


def test_a_lease_of_one_node_is_acknowledged_on_the_other(one: Client, two: Client, sub: str) -> None:
    publish(one, sub, "a", "b")
    given = pull(one, sub)
    assert acknowledge(two, sub, *given.values()).json() == {}
    assert offsets(one, sub) == offsets(two, sub) == 2


def test_nack_and_extension_go_to_the_owner_and_refusals_come_back_as_they_are(
    one: Client, two: Client, sub: str
) -> None:
    publish(one, sub, "a", "b")
    given = pull(one, sub)
    nacked = two.post(f"{sub}:nack", json={"ackIds": [given["a"]]})
    assert (nacked.status_code, nacked.content) == (200, b"")
    extended = two.post(f"{sub}:modifyAckDeadline", json={"ackIds": [given["b"]], "ackDeadlineSeconds": 60})
    assert extended.status_code == 200
    assert list(pull(two, sub)) == ["a"]

    late = [client.post(f"{sub}:nack", json={"ackIds": [given["a"]]}) for client in (one, two)]
    assert [each.status_code for each in late] == [408, 408]
    assert late[0].json() == late[1].json()
    bad = acknowledge(two, sub, f"projects{sub}:99-1.0.1.1.ffffff")
    assert (bad.status_code, bad.json()["error"]["message"]) == (400, "Invalid ack id")


def test_an_answer_has_the_id_of_its_request_and_hot_requests_are_forwarded_again_and_again(
    one: Client, two: Client, sub: str
) -> None:
    publish(one, sub, *map(str, range(10)))
    pull(one, sub, 1)
    for number in range(9):  # from the second on the head is known, and the request on the lane
        answer = two.post(f"{sub}:pull", json={"maxMessages": "1"}, headers={"x-request-id": f"mine-{number}"})
        assert answer.headers["x-request-id"] == f"mine-{number}"
        assert acknowledge(two, sub, *pulled(answer).values()).status_code == 200
    assert offsets(two, sub) == 0
    assert pull(two, sub) == {}


def test_a_pull_waits_on_the_owner(one: Client, two: Client, sub: str) -> None:
    pull(one, sub)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(pull, two, sub, wait=True)
        time.sleep(0.3)
        publish(one, sub, "late")
        assert list(waiting.result()) == ["late"]


def test_a_client_that_leaves_ends_the_wait_on_the_owner(
    nodes: tuple[Served, Served], one: Client, two: Client, sub: str
) -> None:
    pull(one, sub)
    deliverer = nodes[0].run.service.deliverer
    with socket.create_connection(nodes[1].address, timeout=10) as client:
        body = b'{"returnImmediately":"false"}'
        head = f"POST /v1/projects{sub}:pull HTTP/1.1\r\nhost: h\r\nx-api-key: {SERVICE_TOKEN}\r\ncontent-length: "
        client.sendall(f"{head}{len(body)}\r\n\r\n".encode() + body)
        eventually(lambda: deliverer.waiting == 1)
        left = time.monotonic()
    eventually(lambda: deliverer.waiting == 0)
    assert time.monotonic() - left < 0.9  # a wait is for one second


def test_a_seek_is_done_where_the_leases_are(one: Client, two: Client, sub: str) -> None:
    publish(one, sub, "a", "b")
    acknowledge(one, sub, *pull(one, sub).values())
    two.post(f"{sub}:modifyOffset", json={"offset": 1}).raise_for_status()
    assert list(pull(one, sub)) == ["b"]


def test_a_marked_request_is_not_forwarded_again(one: Client, two: Client, sub: str) -> None:
    publish(one, sub, "a")
    given = pull(one, sub)
    for _ in range(3):
        answer = two.post(
            f"{sub}:acknowledge", json={"ackIds": list(given.values())}, headers={"X-AMS-Forwarded-By": "me"}
        )
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert answer.json()["error"]["message"] == "Another node works on this subscription now"
    assert acknowledge(two, sub, *given.values()).status_code == 200


def test_rights_are_checked_where_it_is_done_and_where_it_comes(one: Client, two: Client, sub: str) -> None:
    pull(one, sub)
    unknown = two.post(f"{sub}:pull", json={}, headers={"x-api-key": "nobody"})
    assert unknown.status_code == 401
    member = {"projects": [{"project": "P", "roles": ["consumer"]}]}
    made = two.post(f"/P/members/u{sub[-2:]}", json=member).raise_for_status().json()
    headers = {"x-api-key": made["token"]}
    refused = [client.post(f"{sub}:pull", json={}, headers=headers) for client in (one, two)]
    assert [each.status_code for each in refused] == [403, 403]
    two.post(f"{sub}:modifyAcl", json={"authorized_users": [f"u{sub[-2:]}"]}).raise_for_status()
    assert two.post(f"{sub}:pull", json={"returnImmediately": "true"}, headers=headers).status_code == 200


def test_a_change_that_is_forwarded_is_in_the_audit_log_once(
    nodes: tuple[Served, Served], one: Client, two: Client, sub: str
) -> None:
    publish(one, sub, "a")
    pull(one, sub)
    two.post(f"{sub}:modifyOffset", json={"offset": 0}, headers={"x-request-id": f"move{sub[-2:]}"})
    lines = [
        line
        for node in nodes
        for line in Path(node.run.service.folder.audit).read_text().splitlines()
        if f"move{sub[-2:]}" in line
    ]
    assert len(lines) == 1


def test_a_node_that_does_not_say_how_it_is_reached_is_named_to_clients_of_others(
    tmp_path: Path, settings: dict[str, str], two: Client, sub: str
) -> None:
    with node_served(tmp_path / "silent", settings, node_url="") as silent, client_of(silent.run.base_url) as asked:
        pull(asked, sub)
        answer = two.post(f"{sub}:pull", json={})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert "set node_url on every node" in answer.json()["error"]["message"]


def test_a_node_that_stops_leaves_its_subscriptions_to_others_at_once(
    tmp_path: Path, settings: dict[str, str], two: Client, sub: str
) -> None:
    publish(two, sub, "a", "b", "c")
    with node_served(tmp_path / "stops", settings) as stops, client_of(stops.run.base_url) as asked:
        given = pull(asked, sub, 2)
        assert acknowledge(two, sub, given["a"]).status_code == 200  # two knows now who the owner is
    began = time.monotonic()
    assert acknowledge(two, sub, given["b"]).status_code == 200
    assert time.monotonic() - began < 3
    assert list(pull(two, sub)) == ["c"]
    assert offsets(two, sub) == 2


def test_nodes_ask_each_other_over_tls_and_believe_no_unknown_certificate(
    tmp_path: Path, settings: dict[str, str], one: Client, two: Client, sub: str
) -> None:
    signed = Authority(tmp_path).sign("node")
    certificate = {"cert": str(signed.certificate), "key": str(signed.key)}
    with (
        node_served(tmp_path / "owner", settings, **certificate) as owner,
        node_served(tmp_path / "other", settings, node_ca_file=str(tmp_path / "ca.pem")) as other,
        client_of(owner.run.base_url) as asked,
        client_of(other.run.base_url) as trusting,
    ):
        publish(one, sub, "a")
        given = pull(asked, sub)
        assert acknowledge(trusting, sub, *given.values()).status_code == 200
        refused = acknowledge(two, sub, *given.values())
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")


def until_answered(ask: Callable[[], httpx.Response], seconds: float) -> httpx.Response:
    """Return the first answer that is not a request to come again; that is 503 and nothing else."""
    until = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer.status_code != 503 or time.monotonic() > until:
            return answer
        assert answer.headers["retry-after"] == "2"
        time.sleep(0.2)


@pytest.mark.long
@pytest.mark.parametrize("end", ["killed", "frozen"])
def test_the_loss_of_the_owner_costs_seconds_and_no_exactly_once_acknowledgement(tmp_path: Path, end: str) -> None:
    with processes(tmp_path, 2) as (owner, other), client_of(owner.url) as first, client_of(other.url) as second:
        first.post("/P", json={}).raise_for_status()
        sub = make(first, enableExactlyOnceDelivery=True, ackDeadlineSeconds=10)
        publish(first, sub, *map(str, range(20)))
        given = pull(first, sub, 10)
        confirmed = [given[str(each)] for each in range(5)]
        assert acknowledge(second, sub, *confirmed).status_code == 200
        assert acknowledge(first, sub, given["5"]).status_code == 200

        owner.kill() if end == "killed" else owner.freeze()
        began = time.monotonic()
        taken = until_answered(lambda: acknowledge(second, sub, given["6"]), 30)
        assert taken.status_code in (200, 500)  # 500: the owner had the request; so it is asked again
        assert acknowledge(second, sub, given["6"]).status_code == 200
        assert time.monotonic() - began < 15
        if end == "frozen":
            owner.thaw()
            late = until_answered(lambda: acknowledge(first, sub, given["7"]), 10)
            assert late.status_code == 200
        seen: dict[str, str] = {}
        left = {str(each) for each in range(7 + (end == "frozen"), 20)}
        eventually(lambda: seen.update(pull(second, sub)) or seen.keys() >= left, 30)
        assert seen.keys() == left
        assert acknowledge(second, sub, *seen.values()).status_code == 200
        assert offsets(second, sub) == 20


def eventually(what: Callable[[], bool], seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)
