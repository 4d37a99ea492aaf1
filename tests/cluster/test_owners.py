"""Two nodes: both take requests, one owns a parallel subscription, both serve live views; and workers.

The nodes are in this process, over a real PostgreSQL and a real Kafka; `tests.faults` kills nodes.
"""

import base64
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from itertools import count
from pathlib import Path

import httpx
import pytest

from ams.client import Client as AmsClient
from ams.client import Worked
from local_cluster.certificates import Authority
from tests.client.handlers import Handler, backlog, create_work_project, sharing_handlers
from tests.client.handlers import publish as publish_numbers
from tests.cluster.nodes import node_served, shared_settings
from tests.support.events import next_event
from tests.support.served import SERVICE_TOKEN, InProcessService
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

Client = httpx.Client
Nodes = tuple[InProcessService, InProcessService]
_numbers = count()


def client_of(url: str) -> Client:
    headers = {"x-api-key": SERVICE_TOKEN}
    return httpx.Client(base_url=f"{url}/v1/projects", headers=headers, timeout=PATIENCE_SECONDS, verify=False)


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    return shared_settings()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, str]) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("nodes")
    wait = {"pull_wait": 50.0}
    with node_served(folder / "one", settings, **wait) as one, node_served(folder / "two", settings, **wait) as two:
        with client_of(one.run.base_url) as client:
            client.post("/P", json={}).raise_for_status()
        yield one, two


@pytest.fixture
def client_one(nodes: Nodes) -> Iterator[Client]:
    with client_of(nodes[0].run.base_url) as client:
        yield client


@pytest.fixture
def client_two(nodes: Nodes) -> Iterator[Client]:
    with client_of(nodes[1].run.base_url) as client:
        yield client


@pytest.fixture
def sub(client_one: Client) -> str:
    return make(client_one)


def make(client: Client, **options: object) -> str:
    name = f"s{next(_numbers)}"
    client.put(f"/P/topics/{name}").raise_for_status()
    asked = {"topic": f"projects/P/topics/{name}", "type": "parallel", **options}
    client.put(f"/P/subscriptions/{name}", json=asked).raise_for_status()
    return f"/P/subscriptions/{name}"


def publish(client: Client, sub: str, *data: str) -> None:
    messages = [{"data": base64.b64encode(each.encode()).decode()} for each in data]
    client.post(f"{sub.replace('subscriptions', 'topics')}:publish", json={"messages": messages}).raise_for_status()


def pulled_ack_ids(answer: httpx.Response) -> dict[str, str]:
    found = answer.raise_for_status().json()["receivedMessages"]
    return {base64.b64decode(each["message"]["data"]).decode(): each["ackId"] for each in found}


def pull(client: Client, sub: str, most: int = 100, *, wait: bool = False) -> dict[str, str]:
    body = {"maxMessages": str(most), "returnImmediately": "false" if wait else "true"}
    return pulled_ack_ids(client.post(f"{sub}:pull", json=body))


def acknowledge(client: Client, sub: str, *ids: str) -> httpx.Response:
    return client.post(f"{sub}:acknowledge", json={"ackIds": list(ids)})


def offsets(client: Client, sub: str) -> int:
    return int(client.get(f"{sub}:offsets").raise_for_status().json()["current"])


def test_messages_are_leased_once_by_either_node(client_one: Client, client_two: Client, sub: str) -> None:
    publish(client_one, sub, "a", "b", "c", "d")
    first, second = pull(client_one, sub, 2), pull(client_two, sub, 2)
    assert sorted([*first, *second]) == ["a", "b", "c", "d"]
    assert pull(client_one, sub) == pull(client_two, sub) == {}
    assert acknowledge(client_two, sub, *first.values(), *second.values()).json() == {}
    assert offsets(client_one, sub) == offsets(client_two, sub) == 4
    client_two.post(f"{sub}:modifyOffset", json={"offset": 3}).raise_for_status()
    assert list(pull(client_one, sub)) == ["d"]


def test_nack_and_extension_go_to_the_owner_and_refusals_come_back(client_one: Client, client_two: Client, sub: str):
    publish(client_one, sub, "a", "b")
    given = pull(client_one, sub)
    nacked = client_two.post(f"{sub}:nack", json={"ackIds": [given["a"]]})
    assert (nacked.status_code, nacked.content) == (200, b"")
    extended = client_two.post(f"{sub}:modifyAckDeadline", json={"ackIds": [given["b"]], "ackDeadlineSeconds": 60})
    assert extended.status_code == 200
    assert list(pull(client_two, sub)) == ["a"]

    late = [client.post(f"{sub}:nack", json={"ackIds": [given["a"]]}) for client in (client_one, client_two)]
    assert [each.status_code for each in late] == [408, 408]
    assert late[0].json() == late[1].json()
    bad = acknowledge(client_two, sub, f"projects{sub}:99-1.0.1.1.ffffff")
    assert (bad.status_code, bad.json()["error"]["message"]) == (400, "Invalid ack id")


def test_forwarded_answers_have_the_ids_of_their_requests(client_one: Client, client_two: Client, sub: str) -> None:
    publish(client_one, sub, *map(str, range(10)))
    pull(client_one, sub, 1)
    for number in range(9):  # from the second on the head is known, and the request on the lane
        answer = client_two.post(f"{sub}:pull", json={"maxMessages": "1"}, headers={"x-request-id": f"mine-{number}"})
        assert answer.headers["x-request-id"] == f"mine-{number}"
        assert acknowledge(client_two, sub, *pulled_ack_ids(answer).values()).status_code == 200
    assert offsets(client_two, sub) == 0
    assert pull(client_two, sub) == {}


def test_a_pull_waits_on_the_owner(nodes: Nodes, client_one: Client, client_two: Client, sub: str) -> None:
    pull(client_one, sub)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(pull, client_two, sub, wait=True)
        wait_until(lambda: nodes[0].run.service.deliverer.waiting)
        publish(client_one, sub, "late")
        assert list(waiting.result()) == ["late"]


def test_a_forwarded_change_is_audited_once(nodes: Nodes, client_one: Client, client_two: Client, sub: str) -> None:
    publish(client_one, sub, "a")
    pull(client_one, sub)
    client_two.post(f"{sub}:modifyOffset", json={"offset": 0}, headers={"x-request-id": f"move{sub[-2:]}"})
    lines = [
        line
        for node in nodes
        for line in Path(node.run.service.folder.audit).read_text().splitlines()
        if f"move{sub[-2:]}" in line
    ]
    assert len(lines) == 1


@contextmanager
def view(node: InProcessService, query: str, token: str = SERVICE_TOKEN) -> Iterator[HTTPResponse]:
    with closing(HTTPConnection(*node.address, timeout=PATIENCE_SECONDS)) as connection:
        connection.request("GET", f"/v1/projects/P:watch?{query}", headers={"x-api-key": token})
        with connection.getresponse() as answer:
            yield answer


def test_a_publish_on_one_node_wakes_a_view_on_the_other(nodes: Nodes, client_one: Client, sub: str) -> None:
    name = sub.rpartition("/")[2]
    with view(nodes[1], f"topics={name}&subscriptions={name}&tail={name}") as answer:
        next_event(answer, "counts")
        publish(client_one, sub, "hi")

        said = next_event(answer, "message")[1]
        counts = next_event(answer, "counts")[1]

    assert (said["offset"], said["message"]["data"]) == (0, "aGk=")
    assert counts["topics"][name]["messages"] == counts["subscriptions"][name]["lag"] == 1


def test_a_token_revoked_on_one_node_ends_its_views_on_the_other(nodes: Nodes, client_one: Client, sub: str) -> None:
    user, name = f"{nodes[0].run.base_url}/v1/users/who", sub.rpartition("/")[2]
    made = client_one.post(user, json={"projects": [{"project": "P", "roles": ["project_admin"]}]}).raise_for_status()
    with view(nodes[1], f"topics={name}", made.json()["token"]) as answer:
        next_event(answer, "counts")
        client_one.delete(user).raise_for_status()

        assert next_event(answer, "end")[1]["code"] == 401


def test_an_unreachable_owner_is_named(tmp_path: Path, settings: dict[str, str], client_two: Client, sub: str) -> None:
    with node_served(tmp_path / "silent", settings, node_url="") as silent, client_of(silent.run.base_url) as asked:
        pull(asked, sub)
        answer = client_two.post(f"{sub}:pull", json={})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
        assert "set node_url on every node" in answer.json()["error"]["message"]


def test_nodes_ask_over_tls(tmp_path: Path, settings: dict[str, str], client_one: Client, client_two: Client, sub: str):
    signed = Authority(tmp_path).sign("node")
    certificate = {"cert": str(signed.certificate), "key": str(signed.key)}
    with (node_served(tmp_path / "owner", settings, **certificate) as owner,
          node_served(tmp_path / "other", settings, node_ca_file=str(tmp_path / "ca.pem")) as other,
          client_of(owner.run.base_url) as asked, client_of(other.run.base_url) as trusting):  # fmt: skip
        publish(client_one, sub, "a")
        given = pull(asked, sub)
        assert acknowledge(trusting, sub, *given.values()).status_code == 200
        refused = acknowledge(client_two, sub, *given.values())
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "2")


SECONDS = 60


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder, settings = tmp_path_factory.mktemp("nodes"), shared_settings()
    with node_served(folder / "owner", settings) as owner, node_served(folder / "other", settings) as other:
        yield owner, other


@pytest.fixture
def owner(pair: Nodes) -> Iterator[AmsClient]:
    with AmsClient(pair[0].run.base_url, SERVICE_TOKEN) as client:
        yield client


def create_owned_project(client: AmsClient, **options: bool) -> str:
    project = create_work_project(client, **options)
    assert client.project(project).subscription("s").pull(wait=False) == []
    return project


def test_workers_of_two_nodes_share_a_backlog_and_nothing_is_handled_twice(pair: Nodes, owner: AmsClient) -> None:
    project = create_owned_project(owner)
    data = publish_numbers(owner, project, 300)
    handlers = sharing_handlers()
    done: list[Worked] = []

    def work(node: InProcessService, handler: Handler) -> None:
        with AmsClient(node.run.base_url, SERVICE_TOKEN) as client:
            done.append(client.work("s", handler.handle, project=project, concurrency=4, until_empty=True))

    threads = [threading.Thread(target=work, args=each) for each in zip(pair, handlers, strict=True)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(SECONDS)

    assert Counter(seen for each in handlers for seen in each.seen) == Counter(data)
    assert sum(each.worked for each in done) == 300
    assert all(each.seen for each in handlers)
    assert backlog(owner, project) == 0
