"""Live views on two nodes: what happens on one is told on the other."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse

import httpx
import pytest

from tests.cluster.nodes import node_served, shared_settings
from tests.support.events import next_event
from tests.support.served import SERVICE_TOKEN, Served

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

SECONDS = 20.0


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    folder, settings = tmp_path_factory.mktemp("live"), shared_settings()
    with node_served(folder / "one", settings) as one, node_served(folder / "two", settings) as two:
        ask(one, "POST", "/projects/P", {})
        ask(one, "PUT", "/projects/P/topics/t")
        ask(one, "PUT", "/projects/P/subscriptions/s", {"topic": "projects/P/topics/t"})
        yield one, two


def ask(node: Served, method: str, path: str, body: object = None) -> httpx.Response:
    url, headers = f"{node.run.base_url}/v1{path}", {"x-api-key": SERVICE_TOKEN}
    answer = httpx.request(method, url, json=body, headers=headers, trust_env=False, timeout=SECONDS)
    return answer.raise_for_status()


@contextmanager
def view(node: Served, query: str, token: str = SERVICE_TOKEN) -> Iterator[HTTPResponse]:
    with closing(HTTPConnection(*node.address, timeout=SECONDS)) as connection:
        connection.request("GET", f"/v1/projects/P:watch?{query}", headers={"x-api-key": token})
        with connection.getresponse() as answer:
            yield answer


def test_a_publish_on_one_node_wakes_a_view_on_the_other(nodes: tuple[Served, Served]) -> None:
    one, two = nodes
    with view(two, "topics=t&subscriptions=s&tail=t") as answer:
        before = next_event(answer, "counts")[1]["topics"]["t"]["messages"]
        ask(one, "POST", "/projects/P/topics/t:publish", {"messages": [{"data": "aGk="}]})

        said = next_event(answer, "message")[1]
        counts = next_event(answer, "counts")[1]

    assert (said["offset"], said["message"]["data"]) == (before, "aGk=")
    assert counts["topics"]["t"]["messages"] == counts["subscriptions"]["s"]["lag"] == before + 1


def test_a_token_that_is_revoked_on_one_node_ends_its_views_on_the_other(nodes: tuple[Served, Served]) -> None:
    one, two = nodes
    body = {"projects": [{"project": "P", "roles": ["project_admin"]}]}
    token = ask(one, "POST", "/users/who", body).json()["token"]
    with view(two, "topics=t", token) as answer:
        next_event(answer, "counts")
        ask(one, "DELETE", "/users/who")

        assert next_event(answer, "end")[1]["code"] == 401
