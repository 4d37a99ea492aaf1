"""Every known client but the official library, by its own requests, which `tests.acceptance.clients` has."""

import itertools
import json
from collections.abc import Iterator

import pytest

from tests.acceptance.clients import browser, go, java, node, scripts
from tests.acceptance.clients.wire import Conversation, Says
from tests.support.service import LiveService, live_service

pytestmark = pytest.mark.acceptance

SERVICE_TOKEN = "the-service-token"
_count = itertools.count(1)

CONVERSATIONS = {
    "Java: a run from a date": [*java.FROM_A_RUN_DATE, *java.PULL_AND_ACK_THE_LAST],
    "Java: a run from now": [*java.FROM_NOW, *java.RESULTS],
    "Go: push worker": go.PUSH_WORKER,
    "Go: push server": go.PUSH_SERVER,
    "Node: federation registry": node.FEDERATION_AGENT,
    "Node: registration page": node.REGISTRATION_PROXY,
    "scripts: tenant set-up": scripts.UPDATE_AMS,
    "scripts: tenant check": scripts.CHECK_TENANT,
    "scripts: metric publisher": scripts.METRIC_PUBLISHER,
    "scripts: cloud information": scripts.CLOUD_INFO_PROVIDER,
    "scripts: provisioning": scripts.GOCDB_PROVISIONING,
    "scripts: CI collection": scripts.CI_COLLECTION,
    "browser: login": browser.LOGIN,
    "browser: projects and users": browser.PROJECTS_AND_USERS,
    "browser: topics and schemas": browser.TOPICS_AND_SCHEMAS,
    "browser: subscriptions": [*browser.TOPICS_AND_SCHEMAS, *browser.SUBSCRIPTIONS],
    "browser: registrations": browser.REGISTRATIONS,
    "browser: metrics": browser.METRICS,
    "browser: old page of metrics": browser.OLD_METRICS_PAGE,
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    data = tmp_path_factory.mktemp("clients") / "ams-data"
    flags = ("--min-free-bytes", "0", "--reserve-bytes", "0", "--pull-wait", "100ms", "--service-token", SERVICE_TOKEN)
    with live_service(data, *flags) as service:
        yield service


@pytest.fixture
def conversation(service: LiveService) -> Conversation:
    """A project with five messages in a topic with one subscription, and the users that some clients are."""
    names = {"token": service.token, "P": f"TENANT-{next(_count)}", "service_token": SERVICE_TOKEN}
    conversation = Conversation(service.base_url, names)
    headers = "x-api-key: $token"
    messages = json.dumps({"messages": [{"data": "aGk=", "attributes": {"n": str(n)}} for n in range(5)]})
    conversation.hold(
        [
            Says("POST /v1/projects/$P", headers, "{}"),
            Says("PUT /v1/projects/$P/topics/metric_data", headers),
            Says(
                "PUT /v1/projects/$P/subscriptions/ingest_metric",
                headers,
                '{"topic":"projects/$P/topics/metric_data"}',
            ),
            Says("POST /v1/projects/$P/topics/metric_data:publish", headers, messages),
            Says(
                "POST /v1/projects/$P/members/$P-agent",
                headers,
                '{"projects":[{"project":"$P","roles":["publisher"]}]}',
                keeps={"agent_token": lambda document: document["token"]},
            ),
            Says(
                "POST /v1/users/$P-worker",
                headers,
                '{"service_roles":["push_worker"]}',
                keeps={"worker_token": lambda document: document["token"]},
            ),
        ]
    )
    return conversation


@pytest.mark.parametrize("steps", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_a_client_gets_what_it_needs(steps: list[Says], conversation: Conversation) -> None:
    conversation.hold(steps)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_a_browser_is_let_in_from_any_origin(method: str, conversation: Conversation) -> None:
    heard = conversation.say(browser.preflight(method, "/v1/projects/$P/topics"))

    assert heard.status == 200
    assert heard.headers["access-control-allow-origin"] == "*"
    assert {"content-type", "x-api-key"} <= set(heard.headers["access-control-allow-headers"].lower().split(","))
    if method in ("PUT", "DELETE"):
        assert heard.headers["access-control-allow-methods"] == method


def test_a_page_may_read_answers_and_errors(conversation: Conversation) -> None:
    for step in (browser.LOGIN[0], browser.LOGIN[0]._replace(headers=f"Origin: {browser.ORIGIN}")):
        heard = conversation.say(step)
        assert heard.headers["access-control-allow-origin"] == "*"
        assert heard.headers["content-type"].startswith("application/json")


def test_doubled_slashes_lead_to_the_clean_path(conversation: Conversation) -> None:
    heard = conversation.say(Says("GET /v1///projects/$P//topics?key=$token"))

    assert (heard.status, heard.text) == (301, "")
    where = conversation.say(Says(f"GET {heard.headers['location']}"))
    assert where.document["topics"][0]["name"].endswith("/topics/metric_data")


def test_the_odd_queries_of_clients_are_ignored(conversation: Conversation) -> None:
    headers = "x-api-key: $token"
    for query in ("details=True&pageSize=0&nextPageToken=", "&details=true", "pageSize=", "unknown=1&pageSize=-3"):
        assert conversation.say(Says(f"GET /v1/users?{query}", headers)).status == 200
