"""Sends requests byte for byte and looks at answers as the clients do."""

import http.client
import json
import socket
from collections.abc import Callable, Mapping
from string import Template
from typing import Any, NamedTuple
from urllib.parse import urlsplit

Need = Callable[[Any], bool]
"""What a client needs of an answer's document; it fails or says False when that is not there."""


class Says(NamedTuple):
    """One request and what its sender needs of the answer."""

    line: str
    """Method and target."""
    headers: str = ""
    """One a line; `$token` and other names are filled in, as in line and body. Host and length are added."""
    body: str = ""
    needs: Need = lambda _: True
    status: int = 200
    keeps: Mapping[str, Callable[[Any], str]] = {}
    """What later requests use of the answer, by name."""
    why: str = ""


class Heard(NamedTuple):
    """An answer: status, headers and the body as text."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def document(self) -> Any:
        return json.loads(self.text) if self.text else None


class Conversation:
    """One client's requests, each on a connection of its own as most of them do."""

    def __init__(self, base_url: str, names: Mapping[str, str]) -> None:
        self._address = urlsplit(base_url)
        self.names = dict(names)

    def hold(self, steps: list[Says]) -> None:
        """Say everything; fail at the first answer the client could not live with."""
        for step in steps:
            heard = self.say(step)
            told = (
                f"{Template(step.line).safe_substitute(self.names)} got {heard.status} {heard.text[:300]} ({step.why})"
            )
            assert heard.status == step.status, told
            if heard.status < 300:
                assert step.needs(heard.document), told
            for name, pick in step.keeps.items():
                self.names[name] = pick(heard.document)

    def say(self, step: Says) -> Heard:
        body = Template(step.body).safe_substitute(self.names).encode()
        head = [Template(step.line).safe_substitute(self.names) + " HTTP/1.1", f"Host: {self._address.netloc}"]
        head += [Template(line.strip()).safe_substitute(self.names) for line in step.headers.strip().splitlines()]
        if body or step.line.split()[0] in ("POST", "PUT"):
            head.append(f"Content-Length: {len(body)}")
        assert self._address.hostname is not None
        with socket.create_connection((self._address.hostname, self._address.port or 80), timeout=15) as connection:
            connection.sendall("\r\n".join([*head, "Connection: close", "", ""]).encode() + body)
            answer = http.client.HTTPResponse(connection, method=step.line.split()[0])
            answer.begin()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Heard(answer.status, headers, answer.read().decode())


def has(*names: str) -> Need:
    """Need these members, whatever they hold."""
    return lambda document: all(name in document for name in names)


def lists(*names: str) -> Need:
    """Need these members to be lists."""
    return lambda document: all(isinstance(document[name], list) for name in names)
