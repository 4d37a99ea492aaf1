"""The hot routes over plain HTTP and TLS, with common HTTP clients instead of our own.

The programs are in `tests.acceptance.clients.programs`.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.clients.programs import Ask, run_client
from tests.support.service import LiveService, live_service

pytestmark = [pytest.mark.acceptance, pytest.mark.long]

CLIENTS = [
    "requests", "urllib3", "httpx", "aiohttp", pytest.param("curl", marks=pytest.mark.curl),
    pytest.param("curl --http1.0", marks=pytest.mark.curl), pytest.param("curl --http2", marks=pytest.mark.curl),
    pytest.param("fetch", marks=pytest.mark.node), pytest.param("net/http", marks=pytest.mark.go),
    pytest.param("java.net.http", marks=pytest.mark.jdk),
]  # fmt: skip
"""`curl --http2` and Java offer an upgrade to HTTP/2 on plain HTTP."""
_count = itertools.count(1)
_half = "A" * 750_000
SMALL, BIG = (
    json.dumps({"messages": [{"data": "aGk=", "attributes": {"n": "1"}}]}),
    json.dumps({"messages": [{"data": _half}, {"data": _half}]}),
)
PUBLISHED = {
    "sized": {"body": SMALL}, "of unknown length": {"body": SMALL, "chunked": True}, "big": {"body": BIG},
    "big and expecting": {"body": BIG, "expect": True}, "big and of unknown length": {"body": BIG, "chunked": True},
    "big, of unknown length and expecting": {"body": BIG, "chunked": True, "expect": True},
    "closing": {"body": SMALL, "close": True}, "big and closing": {"body": BIG, "close": True},
    "after one that closed": {"body": SMALL},
}  # fmt: skip


@pytest.fixture(scope="module", params=["http", "https"])
def service(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[LiveService]:
    data = tmp_path_factory.mktemp("real-clients") / "ams-data"
    tls = ["--tls-self-signed"] if request.param == "https" else []
    with live_service(data, "--min-free-bytes", "0", "--reserve-bytes", "0", "--pull-wait", "100ms", *tls) as service:
        yield service


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("programs")


@pytest.fixture
def project(service: LiveService) -> str:
    path = f"/projects/P{next(_count)}"
    service.ask("POST", path, {})
    service.ask("PUT", f"{path}/topics/t")
    service.ask("PUT", f"{path}/subscriptions/s", {"topic": f"{path[1:]}/topics/t"})
    return f"/v1{path}"


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_publish_pull_and_acknowledge(client: str, service: LiveService, project: str, folder: Path) -> None:
    publish, subscription = f"{project}/topics/t:publish", f"{project}/subscriptions/s"
    ids = [f"{subscription[4:]}:{number}" for number in range(sum(2 if "big" in name else 1 for name in PUBLISHED))]
    asks = {name: Ask("POST", publish, service.token, **how) for name, how in PUBLISHED.items()}
    asks |= {
        "pull": Ask("POST", f"{subscription}:pull", service.token, '{"maxMessages": "100"}'),
        "acknowledge": Ask("POST", f"{subscription}:acknowledge", service.token, json.dumps({"ackIds": ids})),
        "empty pull": Ask("POST", f"{subscription}:pull", service.token, '{"returnImmediately": "false"}'),
        "read": Ask("GET", f"{subscription}:offsets", service.token),
    }

    told = dict(zip(asks, run_client(client, folder, service.base_url, service.ca, list(asks.values())), strict=True))

    assert {name: each.status for name, each in told.items()} == dict.fromkeys(asks, 200)
    given = [told[name].document["messageIds"] for name in PUBLISHED]
    assert [len(each) for each in given] == [2 if "big" in name else 1 for name in PUBLISHED]
    assert list(itertools.chain(*given)) == [str(number) for number in range(len(ids))]
    assert [each["ackId"] for each in told["pull"].document["receivedMessages"]] == ids
    data = [each["message"]["data"] for each in told["pull"].document["receivedMessages"]]
    assert data == [part["data"] for how in PUBLISHED.values() for part in json.loads(str(how["body"]))["messages"]]
    assert (told["acknowledge"].body, told["empty pull"].document) == ("{}", {"receivedMessages": []})
    assert told["read"].document["current"] == len(ids)
    assert {each.version for each in told.values()} <= {"", "1.1"}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refused_client_reads_why_and_asks_on(client: str, service: LiveService, project: str, folder: Path) -> None:
    # A JDK before 20 hangs on any refusal instead of 100 Continue, with every service (JDK-8286171).
    asked = [how for how in PUBLISHED.values() if client != "java.net.http" or "expect" not in how]
    refused = [Ask("POST", f"{project}/topics/t:publish", "wrong", **how) for how in asked]
    good = Ask("POST", f"{project}/topics/t:publish", service.token, SMALL)

    told = run_client(client, folder, service.base_url, service.ca, [turn for ask in refused for turn in (ask, good)])

    assert [each.status for each in told] == [401, 200] * len(refused)
    assert [each.document for each in told[::2]] == [
        {"error": {"code": 401, "message": "Unauthorized", "status": "UNAUTHORIZED"}}
    ] * len(refused)
    assert [each.document["messageIds"] for each in told[1::2]] == [[str(n)] for n in range(len(refused))]
