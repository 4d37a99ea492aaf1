"""Programs that publish and consume all the time, and do not know that the service behind is changed.

    python -m demo.migrate.clients WAY publish|consume URL BOOK

The token is in AMS_TOKEN, the certificate to trust in AMS_CA. SIGTERM ends a publisher after the call it makes, and a
consumer when nothing is left. The ways: the official library, a program with `requests`, curl, and our own client.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import requests
from argo_ams_library import AmsException, AmsMessage, ArgoMessagingService

from ams.client import Client, Message
from ams.client.errors import ClientError
from demo.migrate import site
from demo.migrate.books import ACKNOWLEDGE, PUBLISH, PULL, Book, Refused
from demo.service import trust_of_library

BULK, MAX_MESSAGES = 5, 50
PAUSE_SECONDS = 0.3  # between two publishes, or after a pull that brought nothing
RETRY_SECONDS = 0.5
CALL_SECONDS = 150  # for a call to be answered: longer than any pause
ATTRIBUTES = {"from": "the demo"}


class Way(NamedTuple):
    """A client of one topic and one subscription, which both have its name."""

    publish: Callable[[Sequence[str]], object]
    pull: Callable[[], list[tuple[str, str]]]  # returns ids to acknowledge by, and texts, of what is there
    acknowledge: Callable[[str], object]


class Login(NamedTuple):
    url: str
    token: str
    ca: str


def library(login: Login, name: str) -> Way:
    endpoint = login.url.removeprefix("https://")
    ams = ArgoMessagingService(endpoint=endpoint, token=login.token, project=site.PROJECT)

    def publish(texts: Sequence[str]) -> None:
        messages = [AmsMessage(data=each, attributes=ATTRIBUTES) for each in texts]
        ams.publish(name, messages, timeout=CALL_SECONDS)

    def pull() -> list[tuple[str, str]]:
        got = ams.pull_sub(name, MAX_MESSAGES, return_immediately=True, timeout=CALL_SECONDS)
        return [(ack, message.get_data().decode()) for ack, message in got]

    return Way(publish, pull, lambda last: ams.ack_sub(name, [last], timeout=CALL_SECONDS))


def own(login: Login, name: str) -> Way:
    project = Client(login.url, login.token, ca=login.ca, retry=None, timeout=CALL_SECONDS).project(site.PROJECT)
    topic, subscription = project.topic(name), project.subscription(name)

    def pull() -> list[tuple[str, str]]:
        return [(each.ack_id, each.data.decode()) for each in subscription.pull(MAX_MESSAGES, wait=False)]

    return Way(
        lambda texts: topic.publish([Message(each.encode(), ATTRIBUTES) for each in texts]),
        pull,
        subscription.acknowledge,
    )


def plain(post: Callable[[str, str], Any], url: str, name: str) -> Way:
    """Return a program that speaks HTTP by itself; `post` sends a body to an address and returns the answer's JSON."""
    topic, subscription = (f"{url}/v1/projects/{site.PROJECT}/{kind}/{name}" for kind in ("topics", "subscriptions"))
    wanted = json.dumps({"maxMessages": str(MAX_MESSAGES), "returnImmediately": "true"})

    def publish(texts: Sequence[str]) -> None:
        messages = [{"data": base64.b64encode(each.encode()).decode(), "attributes": ATTRIBUTES} for each in texts]
        post(f"{topic}:publish", json.dumps({"messages": messages}))

    def pull() -> list[tuple[str, str]]:
        got = post(f"{subscription}:pull", wanted)["receivedMessages"]
        return [(each["ackId"], base64.b64decode(each["message"]["data"]).decode()) for each in got]

    return Way(publish, pull, lambda last: post(f"{subscription}:acknowledge", json.dumps({"ackIds": [last]})))


def by_requests(login: Login, name: str) -> Way:
    session, headers = requests.Session(), {"x-api-key": login.token}

    def post(address: str, body: str) -> Any:
        answer = session.post(address, body, headers=headers, verify=login.ca, timeout=CALL_SECONDS)
        if answer.status_code != requests.codes.ok:
            raise Refused(f"{answer.status_code} {answer.text}")
        return answer.json()

    return plain(post, login.url, name)


def by_curl(login: Login, name: str) -> Way:
    """Return curl, a process for each call; its token is no argument, which others could see."""
    settings = f'header = "x-api-key: {login.token}"\n'

    def post(address: str, body: str) -> Any:
        command = ["curl", "--silent", "--show-error", "--config", "-", "--cacert", login.ca, "--max-time",
                   str(CALL_SECONDS), "--write-out", "\n%{http_code}", "--data-raw", body, address]  # fmt: skip
        run = subprocess.run(command, input=settings, capture_output=True, text=True, check=False)  # noqa: S603
        text, _, code = run.stdout.rpartition("\n")
        if run.returncode or code != "200":
            raise Refused(f"{code} {text}{run.stderr}")
        return json.loads(text)

    return plain(post, login.url, name)


WAYS = {
    site.LIBRARY: library, site.REQUESTS: by_requests, site.CURL: by_curl, site.CLIENT: own, site.PUSHED: by_requests,
}  # fmt: skip


def main() -> int:
    name, work, url, file = sys.argv[1:]
    login = Login(url, os.environ["AMS_TOKEN"], os.environ["AMS_CA"])
    ended = Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    trust_of_library(Path(login.ca))
    with Path(file).open("a", buffering=1) as opened:
        client, book = WAYS[name](login, name), Book(opened)
        if work == PUBLISH:
            _publish(client, name, book, ended)
        else:
            _consume(client, book, ended)
    return 0


@contextmanager
def _calling() -> Iterator[None]:
    try:
        yield
    except (AmsException, ClientError, requests.RequestException) as error:
        raise Refused(f"{type(error).__name__}: {error}") from None


def _publish(client: Way, name: str, book: Book, ended: Event) -> None:
    number = 0
    while not ended.wait(PAUSE_SECONDS):
        texts = [f"{name} {number + place}" for place in range(BULK)]
        try:
            with book.call(PUBLISH, texts), _calling():
                client.publish(texts)
            number += BULK
        except Refused:
            time.sleep(RETRY_SECONDS)


def _consume(client: Way, book: Book, ended: Event) -> None:
    while True:
        is_last = ended.is_set()
        try:
            if not _pull(client, book) and is_last:
                return
        except Refused:
            time.sleep(RETRY_SECONDS)


def _pull(client: Way, book: Book) -> bool:
    """Pull and acknowledge; return whether anything was there."""
    with book.call(PULL) as brought, _calling():
        got = client.pull()
        brought += [text for _, text in got]
    if not got:
        time.sleep(PAUSE_SECONDS)
        return False
    with book.call(ACKNOWLEDGE, brought), _calling():
        client.acknowledge(got[-1][0])
    return True


if __name__ == "__main__":
    sys.exit(main())
