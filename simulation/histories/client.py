"""A client of a history: makes attempts, numbers them and reads their answers. Subclasses send the requests."""

import json
from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, NamedTuple, Protocol

from bench.connection import CLOSED, Connection, Response
from simulation.histories.attempts import Facts, Outcome

PROJECT = "/v1/projects/FAULTS"
LATE = "ack timeout"


class Kind(Enum):
    """Kinds of requests at which kills can aim."""

    BULK = "publishes of 100 messages and more"
    ACK = "acks"
    SETTLE = "acks and nacks of leases"
    GOOGLE = "acks and nacks of Google's clients"
    OTHER = "other requests"


class Tried(NamedTuple):
    """An attempt and its answer's document (None without an answer)."""

    facts: Facts
    document: Any
    refusal: str = ""

    @property
    def is_done(self) -> bool:
        return self.facts["outcome"] is Outcome.DONE


class Log(Protocol):
    """Shared state of a history's clients: `stopping` ends each one after its current attempt."""

    stopping: bool


class Client(ABC):
    """Base of clients. Requests have the client's name and a number."""

    resource = PROJECT.removeprefix("/v1/")
    """Prefix of resource names: the project."""

    def __init__(self, name: str, log: Log) -> None:
        self._name, self._log = name, log
        self._connection: Connection | None = None
        self._numbers = 0

    @property
    def goes_on(self) -> bool:
        return not self._log.stopping

    def next_request(self) -> str:
        self._numbers += 1
        return f"{self._name}-{self._numbers}"

    @abstractmethod
    async def attempt(
        self, name: str, path: str, body: object, kind: Kind = Kind.OTHER, *, method: str = "POST", **headers: str
    ) -> Tried:
        """Make one attempt and return its outcome; `headers` as in `bench.connection.request`."""

    @abstractmethod
    async def must(self, path: str, body: object, *, method: str = "POST") -> Any:
        """Call and return the document. For the setup and the end of a history."""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def encode_body(body: object) -> bytes:
    return json.dumps(body).encode() if body is not None else b""


def to_tried(name: str, started: float, ended: float, outcome: Outcome, answer: Response) -> Tried:
    document = json.loads(answer.body) if outcome is Outcome.DONE and answer.body else None
    return Tried(Facts(request=name, started=started, ended=ended, outcome=outcome), document, error_text(answer))


def error_text(answer: Response) -> str:
    """Return the message of an error, or the start of a proxy's page."""
    if answer.status in (CLOSED, 200):
        return ""
    try:
        return str(json.loads(answer.body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return answer.body[:100].decode(errors="replace")
