"""The vocabulary of the contract table.

A row is one line of a contract: a state, one request, its answer, and the state afterwards. Every row has a project of
its own, `$P`, and paths below `/v1`. Names in a row:

- `$P-x`, `$token_x`, `$uuid_x`, `$made_x`: name, token, uuid and creation time of a user.
- `$activation_x`: the activation token of a registration.
- `$next`, `$etag`: the last page token, and the last `ETag`.
- `$ack_7`, `$ack_7_before`: the last ack id of message 7, and the one before; `$hand_out_7` is the end of the last.
- `$receiver`, `$other`, `$broken`: push endpoints (`runner.py`).
- `$hash`, `$header`, `$hash_before`, `$header_before`: the secrets shown last, and those shown before them.
- `$now`, `$before`: the time, which stands still unless a row moves it, and an hour ago.
- `$today`, `$yesterday`, `$week`: days; `$week` is six days ago.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import Template
from typing import Any, NamedTuple

NO_BODY = b""

WORDS = {
    "BR": (400, "BAD_REQUEST"), "IA": (400, "INVALID_ARGUMENT"), "UN": (401, "UNAUTHORIZED"), "FO": (403, "FORBIDDEN"),
    "NF": (404, "NOT_FOUND"), "TO": (408, "TIMEOUT"), "AE": (409, "ALREADY_EXISTS"), "CO": (409, "CONFLICT"),
    "IE": (500, "INTERNAL_SERVER_ERROR"),
}  # fmt: skip
"""The contract's short forms of errors."""


class Request(NamedTuple):
    """A request. `by` is admin, service (the service token), nobody, stranger (an unknown token), or a user's name."""

    method: str
    path: str
    body: object = NO_BODY  # bytes go as they are, anything else as JSON
    by: str = "admin"
    headers: Mapping[str, str] = {}
    remember: str = ""  # keep token and uuid of the answer under this name
    root: str = "/v1"


class Wait(NamedTuple):
    seconds: float


@dataclass(frozen=True)
class Like:
    """Any text that a pattern matches."""

    pattern: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and re.fullmatch(self.pattern, other) is not None


class Has:
    """An object with at least these members; a member that is None here must be absent."""

    def __init__(self, **members: Any) -> None:
        self.members = members

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and {key: other.get(key) for key in self.members} == self.members

    def __repr__(self) -> str:
        return f"Has({self.members})"


@dataclass(frozen=True)
class ListWith:
    item: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, list) and self.item in other


@dataclass(frozen=True)
class OtherSecret:
    """A fresh secret, different from this one."""

    old: str

    def __eq__(self, other: object) -> bool:
        return other == TOKEN and other != self.old


class Answer(NamedTuple):
    """The expected answer: a JSON value, or bytes."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = {}


EMPTY = Answer(b"")
DATE = Like(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
TOKEN = Like("[0-9a-f]{64}")
UUID = Like("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Row(NamedTuple):
    """One line of a contract: `line` names it (several by comma), `says` is its sentence for readers."""

    line: str
    says: str
    ask: Request
    gets: Answer
    given: tuple[Request | Wait, ...] = ()
    then: tuple[tuple[Request | Wait, Answer | None], ...] = ()
    served: str = "usual"  # which settings the service has (`tests.contract.conftest.SETTINGS`)

    standing: bool = False
    """True if the answer depends on the time of a publish, and is right only while the log's clock stands still."""

    @property
    def lines(self) -> list[str]:
        return self.line.split(", ")

    @property
    def needs_clock(self) -> bool:
        """Return whether message times and deadlines must follow the test's own clock."""
        return self.standing or any(isinstance(step, Wait) for step in self.steps)

    @property
    def steps(self) -> "tuple[Request | Wait, ...]":
        return (*self.given, self.ask, *(step for step, _ in self.then))


def error(short: str, message: str, **headers: str) -> Answer:
    code, word = WORDS[short]
    return custom_error(code, word, message, **headers)


def custom_error(code: int, word: str, message: str, **headers: str) -> Answer:
    """Return an error without a short form."""
    return Answer({"error": {"code": code, "message": message, "status": word}}, code, headers)


FORBIDDEN = error("FO", "Access to this resource is forbidden")
UNAUTHORIZED = error("UN", "Unauthorized")
NO_PROJECT = error("NF", "project doesn't exist")
NO_TOPIC = error("NF", "Topic doesn't exist")
NO_SUBSCRIPTION = error("NF", "Subscription doesn't exist")
NO_USER = error("NF", "User doesn't exist")
OK = Answer(Has())


def get(path: str, by: str = "admin", **more: Any) -> Request:
    return Request("GET", path, by=by, **more)


def post(path: str, body: object = NO_BODY, by: str = "admin", **more: Any) -> Request:
    return Request("POST", path, body, by, **more)


def put(path: str, body: object = NO_BODY, by: str = "admin", **more: Any) -> Request:
    return Request("PUT", path, body, by, **more)


def delete(path: str, by: str = "admin") -> Request:
    return Request("DELETE", path, by=by)


PROJECT = "/projects/$P"
TOPICS = PROJECT + "/topics"
TOPIC = TOPICS + "/T"
SUBSCRIPTIONS = PROJECT + "/subscriptions"
SUBSCRIPTION = SUBSCRIPTIONS + "/S"
MEMBERS = PROJECT + "/members"
SCHEMAS = PROJECT + "/schemas"
SCHEMA = SCHEMAS + "/X"

A_TOPIC = put(TOPIC)
A_SUBSCRIPTION = put(SUBSCRIPTION, {"topic": "projects/$P/topics/T"})
BOTH = (A_TOPIC, A_SUBSCRIPTION)


def member(name: str, *roles: str) -> Request:
    body = {"projects": [{"project": "$P", "roles": list(roles)}]}
    return post(f"{MEMBERS}/$P-{name}", body, remember=name)


def user(name: str, *service_roles: str, **details: object) -> Request:
    return post(f"/users/$P-{name}", {"service_roles": list(service_roles), **details}, remember=name)


PUB, CON, ADM = member("pub", "publisher"), member("con", "consumer"), member("adm", "project_admin")
HERE = {"project": "$P", "roles": ["publisher"], "topics": [], "subscriptions": []}  # what `pub` is here
PERSON = {"first_name": "F", "last_name": "L", "organization": "O", "description": "D", "email": "f@o.example"}
BAD_USER = error("IA", "Invalid User Arguments")
DAY = 86_400


def modify_acl(resource: str, *names: str) -> Request:
    return post(f"{resource}:modifyAcl", {"authorized_users": [f"$P-{name}" for name in names]})


def publish(*data: str, by: str = "admin", to: str = TOPIC) -> Request:
    return post(f"{to}:publish", {"messages": [{"data": each} for each in data or ("aGk=",)]}, by)


def pull(count: int = 100, by: str = "admin", of: str = SUBSCRIPTION) -> Request:
    return post(f"{of}:pull", {"maxMessages": str(count), "returnImmediately": "true"}, by)


def ack(*numbers: int, by: str = "admin", name: str = "S") -> Request:
    ids = [f"projects/$P/subscriptions/{name}:{number}" for number in numbers]
    return post(f"{SUBSCRIPTIONS}/{name}:acknowledge", {"ackIds": ids}, by)


def batch_with_ids(*numbers: int) -> Answer:
    ids = {number: f"projects/$P/subscriptions/S:{number}" for number in numbers}
    return Answer({"receivedMessages": [Has(ackId=ids[each], message=Has(messageId=str(each))) for each in numbers]})


def offsets(minimum: int, current: int, maximum: int) -> Answer:
    return Answer({"min": minimum, "current": current, "max": maximum})


ASK_OFFSETS = get(SUBSCRIPTION + ":offsets")


def fill_names(value: Any, names: Mapping[str, str]) -> Any:
    """Replace the row's own names in every text of a value."""
    if isinstance(value, str):
        return Template(value).safe_substitute(names)
    if isinstance(value, Has):
        return Has(**fill_names(value.members, names))
    if isinstance(value, OtherSecret):
        return OtherSecret(fill_names(value.old, names))
    if isinstance(value, ListWith):
        return ListWith(fill_names(value.item, names))
    if isinstance(value, Mapping):
        return {fill_names(key, names): fill_names(each, names) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [fill_names(each, names) for each in value]
    return value


def join_rows(*groups: Iterable[Row]) -> list[Row]:
    return [row for group in groups for row in group]
