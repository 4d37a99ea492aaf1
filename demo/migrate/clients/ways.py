"""How each kind of client asks: the official library, a program with `requests`, curl, and our own client."""

import base64
import json
import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import requests
from argo_ams_library import AmsException, AmsMessage, ArgoMessagingService

from ams.client import Client, Message, ReceivedMessage
from ams.client.errors import ClientError
from demo.migrate import site
from demo.migrate.clients.book import Refused
from demo.service import trust_of_library

SECONDS = 150
"""For a call to be answered: longer than any pause."""
ATTRIBUTES = {"from": "the demo"}


class Way(ABC):
    """A client of one topic and one subscription."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name
        self.token, self.ca = os.environ["AMS_TOKEN"], os.environ["AMS_CA"]

    @abstractmethod
    def publish(self, texts: Sequence[str]) -> None:
        """Publish; raise `Refused` when the answer is another than that it is stored."""

    @abstractmethod
    def pull(self, most: int) -> list[tuple[str, str]]:
        """Return ids to acknowledge by, and texts, of what is there."""

    @abstractmethod
    def acknowledge(self, last: str) -> None:
        """Acknowledge all up to this id."""


class Library(Way):
    """The official library, as it comes."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name)
        endpoint = url.removeprefix("https://")
        self._ams = ArgoMessagingService(endpoint=endpoint, token=self.token, project=site.PROJECT)

    def publish(self, texts: Sequence[str]) -> None:
        """Publish by `publish`."""
        messages = [AmsMessage(data=each, attributes=ATTRIBUTES) for each in texts]
        self._try(lambda: self._ams.publish(self.name, messages, timeout=SECONDS))

    def pull(self, most: int) -> list[tuple[str, str]]:
        """Pull by `pull_sub`."""
        got = self._try(lambda: self._ams.pull_sub(self.name, most, return_immediately=True, timeout=SECONDS))
        return [(ack, message.get_data().decode()) for ack, message in got]

    def acknowledge(self, last: str) -> None:
        """Acknowledge by `ack_sub`."""
        self._try(lambda: self._ams.ack_sub(self.name, [last], timeout=SECONDS))

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except AmsException as error:
            raise Refused(str(error)) from None


class Plain(Way):
    """What speaks HTTP by itself."""

    @abstractmethod
    def ask(self, path: str, body: str) -> Any:
        """Post; return the answer's JSON, raise `Refused`."""

    def publish(self, texts: Sequence[str]) -> None:
        """Post to `:publish`."""
        messages = [{"data": _b64(each), "attributes": ATTRIBUTES} for each in texts]
        self.ask(f"topics/{self.name}:publish", json.dumps({"messages": messages}))

    def pull(self, most: int) -> list[tuple[str, str]]:
        """Post to `:pull`."""
        wanted = {"maxMessages": str(most), "returnImmediately": "true"}
        got = self.ask(f"subscriptions/{self.name}:pull", json.dumps(wanted))
        return [(each["ackId"], base64.b64decode(each["message"]["data"]).decode()) for each in got["receivedMessages"]]

    def acknowledge(self, last: str) -> None:
        """Post to `:acknowledge`."""
        self.ask(f"subscriptions/{self.name}:acknowledge", json.dumps({"ackIds": [last]}))

    def address(self, path: str) -> str:
        """Return the whole address of what is in the project."""
        return f"{self.url}/v1/projects/{site.PROJECT}/{path}"


class Requests(Plain):
    """A plain program with `requests`, which keeps its connection."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name)
        self._session = requests.Session()

    def ask(self, path: str, body: str) -> Any:
        """Post by the session."""
        headers = {"x-api-key": self.token}
        try:
            answer = self._session.post(self.address(path), body, headers=headers, verify=self.ca, timeout=SECONDS)
            if answer.status_code == requests.codes.ok:
                return answer.json()
        except requests.RequestException as error:
            raise Refused(f"{type(error).__name__}: {error}") from None
        raise Refused(f"{answer.status_code} {answer.text}")


class Curl(Plain):
    """curl, a process for each call; its token and body are no arguments, which others could see."""

    def ask(self, path: str, body: str) -> Any:
        """Post by curl."""
        settings = f'header = "x-api-key: {self.token}"\n'
        command = ["curl", "--silent", "--show-error", "--config", "-", "--cacert", self.ca, "--max-time", str(SECONDS),
                   "--write-out", "\n%{http_code}", "--data-raw", body, self.address(path)]  # fmt: skip
        run = subprocess.run(command, input=settings, capture_output=True, text=True, check=False)  # noqa: S603
        text, _, code = run.stdout.rpartition("\n")
        if run.returncode or code != "200":
            raise Refused(f"{code} {text}{run.stderr}")
        return json.loads(text)


class Own(Way):
    """Our own client."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, name)
        project = Client(url, self.token, ca=self.ca, retry=None, timeout=SECONDS).project(site.PROJECT)
        self._topic, self._subscription = project.topic(name), project.subscription(name)

    def publish(self, texts: Sequence[str]) -> None:
        """Publish by the topic's `publish`."""
        messages = [Message(each.encode(), ATTRIBUTES) for each in texts]
        self._try(lambda: self._topic.publish(messages))

    def pull(self, most: int) -> list[tuple[str, str]]:
        """Pull by the subscription's `pull`."""
        got: list[ReceivedMessage] = self._try(lambda: self._subscription.pull(most, wait=False))
        return [(each.ack_id, each.data.decode()) for each in got]

    def acknowledge(self, last: str) -> None:
        """Acknowledge by the subscription's `acknowledge`."""
        self._try(lambda: self._subscription.acknowledge(last))

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except ClientError as error:
            raise Refused(f"{type(error).__name__}: {error}") from None


def way(name: str, url: str) -> Way:
    """Return a client that goes this way."""
    kinds: dict[str, type[Way]] = {
        site.LIBRARY: Library, site.REQUESTS: Requests, site.CURL: Curl, site.CLIENT: Own, site.PUSHED: Requests,
    }  # fmt: skip
    made = kinds[name](url, name)
    trust_of_library(made.ca)  # type: ignore[arg-type]
    return made


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
