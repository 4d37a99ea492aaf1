"""Sends a row's requests to a running service, and compares. `$receiver` shows the last hash, as an endpoint must."""

import contextlib
import itertools
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from ams.core.clock import Milliseconds, day_of, day_text, resource_date
from tests.contract.rows import Answer, Request, Row, Wait, fill_names
from tests.support.receiver import answers, receiver
from tests.support.served import SERVICE_TOKEN, WORKER_TOKEN, InProcessService

JSON = "application/json; charset=utf-8"
LINES = "application/x-ndjson"

_count = itertools.count(1)
_NOTHING = b"{"  # a body that no hot route takes: it changes nothing, but its head is known afterwards


def is_hot(ask: Request) -> bool:
    """Return whether a request can take the fast lane, by its method and path."""
    return ask.method == "POST" and ask.path.partition("?")[0].endswith((":publish", ":pull", ":acknowledge"))


@dataclass
class Endpoints:
    """Running endpoints by their names in rows, `HOST:PORT` each."""

    names: dict[str, str]
    ca: str
    hash: str = ""  # what `$receiver` shows


@contextlib.contextmanager
def open_endpoints(folder: Path) -> Iterator[Endpoints]:
    endpoints = Endpoints({}, "")

    def show(connection: ssl.SSLSocket) -> None:
        answers(endpoints.hash)(connection)

    behaviours = {"receiver": show, "other": answers("0" * 64), "broken": answers("", "500 Internal Server Error")}
    with contextlib.ExitStack() as stack:
        for name, behaviour in behaviours.items():
            running = stack.enter_context(receiver(folder, behaviour))
            endpoints.names[name] = f"127.0.0.1:{running.port}"
            endpoints.ca = running.ca
        yield endpoints


class Runner:
    """One row's own project in a running service.

    `primed`: before each hot request comes one with the same head and a body that is refused, so that the hot request
    takes the fast lane if it can.
    """

    def __init__(
        self, served: InProcessService, client: httpx.Client, endpoints: Endpoints, *, primed: bool = False
    ) -> None:
        self._primed = primed
        self._served = served
        self._client = client
        self._endpoints = endpoints
        self._names = {"P": f"project-{next(_count)}", "token_worker": WORKER_TOKEN, **endpoints.names}
        self._tokens = {"admin": served.token, "service": SERVICE_TOKEN, "stranger": "0" * 64, "nobody": ""}
        self._tokens["worker"] = WORKER_TOKEN

    def run_row(self, row: Row) -> None:
        for step in (Request("POST", "/projects/$P", {}), *row.given):
            self._expect(step, None)
        self._expect(row.ask, row.gets)
        for step, answer in row.then:
            self._expect(step, answer)

    def run_step(self, ask: Request) -> None:
        self._expect(ask, None)

    def _times(self) -> dict[str, str]:
        now = self._served.clock.wall()
        days = {name: day_text(day_of(now) - ago) for name, ago in (("today", 0), ("yesterday", 1), ("week", 6))}
        return {"now": resource_date(now), "before": resource_date(Milliseconds(now - 3_600_000)), **days}

    def ask(self, ask: Request) -> httpx.Response:
        """Send a request, and remember names of what it made."""
        headers = dict(fill_names(ask.headers, self._names))
        token = self._tokens[ask.by]
        if token:
            headers.setdefault("x-api-key", token)
        body = ask.body if isinstance(ask.body, bytes) else json.dumps(fill_names(ask.body, self._names)).encode()
        # Send it exactly as written.
        target = {"target": (ask.root + fill_names(ask.path, self._names | self._times())).encode()}
        url = self._served.run.base_url
        if self._primed and is_hot(ask):
            self._client.request(ask.method, url, content=_NOTHING, headers=headers, extensions=target)
        answer = self._client.request(ask.method, url, content=body, headers=headers, extensions=target)
        if ask.remember and answer.status_code == 200:
            self._remember(ask.remember, answer.json())
        self._names["etag"] = answer.headers.get("etag", self._names.get("etag", ""))
        if b'"nextPageToken"' in answer.content:
            self._names["next"] = quote(answer.json()["nextPageToken"], safe="")
        if b'"ackId"' in answer.content:
            self._see_ack_ids(answer)
        if b'"verificationHash"' in answer.content:
            self._show_hash(answer.json())
        return answer

    def _see_ack_ids(self, answer: httpx.Response) -> None:
        """Remember the ack ids of messages: `$ack_7`, the one before as `$ack_7_before`, and `$hand_out_7`."""
        for each in answer.json().get("receivedMessages", ()):
            name = f"ack_{each['message']['messageId']}"
            self._names[name + "_before"] = self._names.get(name, "")
            self._names[name] = each["ackId"]
            self._names[f"hand_out_{each['message']['messageId']}"] = each["ackId"].partition("-")[2]

    def _show_hash(self, answer: Mapping[str, Any]) -> None:
        """Remember the secrets of a push configuration; `$receiver` shows its hash from now on."""
        config = answer.get("pushConfig", {})
        for name, shown in (
            ("hash", config.get("verificationHash")),
            ("header", config.get("authorizationHeader", {}).get("value")),
        ):
            self._names[name + "_before"] = self._names.get(name, "")
            self._names[name] = shown or self._names.get(name, "")
        self._endpoints.hash = self._names["hash"]

    def _expect(self, step: Request | Wait, wanted: Answer | None) -> None:
        if isinstance(step, Wait):
            self._served.clock.advance(round(step.seconds * 1000))
            return
        answer = self.ask(step)
        got = f"{step.method} {step.path} gave {answer.status_code} {answer.text}"
        check_form(answer)
        if wanted is None:
            assert answer.status_code == 200, got
            return
        assert answer.status_code == wanted.status, got
        body = fill_names(wanted.body, self._names | self._times())
        assert _read_body(answer, body) == body, got
        for name, value in fill_names(wanted.headers, self._names).items():
            assert answer.headers.get(name.replace("_", "-"), "") == value, f"{got} {answer.headers}"

    def _remember(self, name: str, made: Mapping[str, str]) -> None:
        given = {"token": "token", "uuid": "uuid", "made": "created_on", "activation": "activation_token"}
        self._names |= {f"{what}_{name}": made[field] for what, field in given.items() if field in made}
        if "token" in made:
            self._tokens[name] = made["token"]


def _read_body(answer: httpx.Response, wanted: object) -> object:
    if isinstance(wanted, bytes):
        return answer.content
    if answer.headers["content-type"] == LINES:
        return [json.loads(line) for line in answer.text.splitlines()]
    return answer.json()


def check_form(answer: httpx.Response) -> None:
    """Check the rules of every answer (contract 1 and 1.1): JSON, no nulls, errors in the envelope."""
    if answer.status_code == 301:
        return
    if answer.headers["content-type"] == LINES:
        assert answer.status_code == 200
        assert all(None not in _values(json.loads(line)) for line in answer.text.splitlines())
        return
    assert answer.headers["content-type"] == JSON
    if not answer.content:
        assert answer.status_code == 200 or answer.request.method == "HEAD"
        return
    body = answer.json()
    assert None not in _values(body)
    if answer.status_code != 200:
        assert (list(body), sorted(body["error"])) == (["error"], ["code", "message", "status"])
        assert body["error"]["code"] == answer.status_code


def _values(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, dict):
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _values(each)
