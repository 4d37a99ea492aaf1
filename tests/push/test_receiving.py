"""The receiver that other tests rely on does what it says, judged by an ordinary client."""

import asyncio
import json
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.receiving import Receiving


@pytest.fixture
def client(receiving: Receiving) -> Iterator[httpx.Client]:
    trust = ssl.create_default_context(cafile=receiving.ca)
    trust.minimum_version = ssl.TLSVersion.TLSv1_2  # whatever the system says
    with httpx.Client(verify=trust, trust_env=False, timeout=30) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "status"),
    [("/ok", 200), ("/ok/a", 200), ("/created", 201), ("/accepted", 202), ("/empty", 204), ("/gone", 410),
     ("/status/503", 503), ("/slow/10", 200), ("/long/100000", 200), ("/redirect", 307), ("/bomb", 500),
     ("/unknown", 404), ("/close", 200)],
)  # fmt: skip
def test_it_answers_as_its_path_says_and_remembers(
    receiving: Receiving, client: httpx.Client, path: str, status: int
) -> None:
    assert client.post(receiving.url(path), content=b"body", headers={"X-Of": "a test"}).status_code == status

    (came,) = receiving.requests(path)
    assert (came.method, came.path, came.body, came.headers["x-of"]) == ("POST", path, "body", "a test")


def test_it_says_when_to_come_again(receiving: Receiving, client: httpx.Client) -> None:
    answer = client.post(receiving.url("/status/429?retry-after=7&body=slowly"))

    assert (answer.status_code, answer.headers["Retry-After"], answer.text) == (429, "7", "slowly")


def test_it_fails_a_few_times_and_then_accepts(receiving: Receiving, client: httpx.Client) -> None:
    assert [client.post(receiving.url("/fail/2")).status_code for _ in range(4)] == [503, 503, 200, 200]


def test_it_refuses_messages_with_a_word_in_them(receiving: Receiving, client: httpx.Client) -> None:
    poison = {"messages": [{"message": {"data": "aGk="}}, {"message": {"data": "cG9pc29u"}}]}

    assert client.post(receiving.url("/refuse/poison"), content=json.dumps(poison)).status_code == 422
    assert client.post(receiving.url("/refuse/other"), content=json.dumps(poison)).status_code == 200


def test_it_answers_as_mattermost_does(receiving: Receiving, client: httpx.Client) -> None:
    said = client.post(receiving.url("/mattermost"), content=b'{"text": "hello"}')
    refused = client.post(receiving.url("/mattermost/forbidden"), content=b'{"text": "hello"}')

    assert (said.status_code, said.text) == (200, "ok")
    assert client.post(receiving.url("/mattermost"), content=b"{}").status_code == 400
    assert refused.status_code == 403
    assert refused.json()["detailed_error"] == "by the admin"


def test_it_shows_the_hash_that_was_set(receiving: Receiving, client: httpx.Client) -> None:
    receiving.show("abc")

    assert client.get(receiving.url("/ams_verification_hash")).text == "abc"


def test_connections_are_kept_and_counted(receiving: Receiving, client: httpx.Client) -> None:
    for _ in range(3):
        client.post(receiving.url("/ok"))

    assert len({each.connection for each in receiving.requests()}) == 1


@pytest.mark.parametrize("path", ["/hang", "/drip?every=0.05"])
def test_some_answers_do_not_come_in_time(receiving: Receiving, client: httpx.Client, path: str) -> None:
    with pytest.raises(httpx.TimeoutException):
        client.post(receiving.url(path), timeout=0.03)


@pytest.mark.parametrize("path", ["/endless", "/huge"])
def test_some_answers_never_end(receiving: Receiving, client: httpx.Client, path: str) -> None:
    with client.stream("POST", receiving.url(path)) as answer:
        parts = answer.iter_raw()

        assert sum(len(next(parts)) for _ in range(100)) > 1_000_000


@pytest.mark.parametrize("path", ["/garbage", "/half", "/nothing"])
def test_some_answers_are_none(receiving: Receiving, client: httpx.Client, path: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        client.post(receiving.url(path))


@pytest.mark.parametrize(
    ("name", "said"),
    [("expired", "certificate has expired"), ("other-name", "IP address mismatch"),
     ("unknown-ca", "unable to get local issuer"), ("tls-1.0", "unsupported protocol|version"),
     ("tls-1.1", "unsupported protocol|version"), ("alert", "alert protocol version"),
     ("plain", "wrong version number|record layer"), ("silent", "timed out"), ("reset", "reset"),
     ("refused", "refused"), ("swallow", "timed out")],
)  # fmt: skip
def test_some_endpoints_cannot_be_talked_to(receiving: Receiving, client: httpx.Client, name: str, said: str) -> None:
    with pytest.raises(httpx.HTTPError, match=said):
        client.post(receiving.bad(name), timeout=0.3 if said == "timed out" else 30)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_protocols_are_really_served(receiving: Receiving, version: ssl.TLSVersion) -> None:
    old = ssl.create_default_context(cafile=receiving.ca)
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, version
    old.set_ciphers("ALL:@SECLEVEL=0")
    url = urlsplit(receiving.bad("tls-1.0" if version is ssl.TLSVersion.TLSv1 else "tls-1.1"))

    with (
        socket.create_connection((url.hostname or "", url.port or 0), 5) as plain,
        old.wrap_socket(plain, server_hostname=url.hostname) as secure,
    ):
        assert secure.version() == ("TLSv1" if version is ssl.TLSVersion.TLSv1 else "TLSv1.1")


def test_further_ports_are_endpoints_of_their_own(receiving: Receiving, client: httpx.Client) -> None:
    ports = {urlsplit(each).port for each in receiving.more()}

    assert len(ports) == len(receiving.more()) > 50
    assert client.post(receiving.more("/created")[0]).status_code == 201


async def test_many_connections_are_taken_at_once(receiving: Receiving) -> None:
    trust = ssl.create_default_context(cafile=receiving.ca)
    async with httpx.AsyncClient(verify=trust, trust_env=False) as client:
        answers = await asyncio.gather(*(client.post(receiving.url()) for _ in range(50)))

    assert {each.status_code for each in answers} == {200}
