"""Records of clients' calls, a line for each, and their totals; and a comparison of both services' answers."""

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import requests

from demo.workers import lines_of, note

OK = "ok"
PUBLISH, PULL, ACKNOWLEDGE = "publish", "pull", "acknowledge"


class Refused(Exception):
    """An answer that is an error, or no answer; the text is what the service said."""


class Call(NamedTuple):
    kind: str
    seconds: float
    said: str
    texts: list[str]


class Book:
    def __init__(self, file: TextIO) -> None:
        self._file = file

    @contextmanager
    def call(self, kind: str, texts: Sequence[str] = ()) -> Iterator[list[str]]:
        began, brought, said = time.monotonic(), list(texts), OK
        try:
            yield brought
        except Refused as refused:
            said = str(refused)
            raise
        finally:
            note(self._file, json.dumps(Call(kind, time.monotonic() - began, said, brought)))


class Balance(NamedTuple):
    published: int
    lost: list[str]  # acknowledged texts that were not consumed
    repeated: list[str]
    refused: list[str]  # answers that were errors, each with the client that got it
    pause: float


def balance(publishers: Iterable[Path], consumers: Iterable[Path], pushed: Mapping[str, int]) -> Balance:
    """Add up the books; `pushed` says how often each text came to the receiver of pushes, who confirms each."""
    sent, got = ({book.stem: _calls_in(book) for book in books} for books in (publishers, consumers))
    calls = [(name, each) for calls in (sent, got) for name, made in calls.items() for each in made]
    published = [text for made in sent.values() for each in made for text in _texts(each, PUBLISH)]
    received = {text for made in got.values() for each in made for text in _texts(each, PULL)} | pushed.keys()
    repeated = [text for made in got.values() for text in _repeated(made)]
    return Balance(
        len(published),
        [text for text in published if text not in received],
        repeated + [text for text, times in pushed.items() if times > 1],
        [f"{name}: {each.kind}: {each.said}" for name, each in calls if each.said != OK],
        max((each.seconds for _, each in calls), default=0.0),
    )


def _calls_in(book: Path) -> list[Call]:
    return [Call(*json.loads(line)) for line in lines_of(book)]


def _texts(call: Call, kind: str) -> Sequence[str]:
    return call.texts if call.kind == kind and call.said == OK else ()


def _repeated(calls: Sequence[Call]) -> list[str]:
    confirmed: set[str] = set()
    found = []
    for each in calls:
        found += [text for text in _texts(each, PULL) if text in confirmed]
        confirmed.update(_texts(each, ACKNOWLEDGE))
    return found


Json = Any
Answers = dict[str, Json]
SECONDS = 60
NEVER = "0001-01-01T00:00:00Z"
_SECRETS = ("token", "value", "verificationHash", "mattermostUrl")


def answers(url: str, ca: str | bool, token: str, odd: Collection[str] = ()) -> Answers:
    """Ask a service, as a service_admin, for all that it has, less what is `odd`: users, `PROJECT`, `PROJECT/NAME`."""
    with requests.Session() as session:
        return dict(_answers(_Asking(session, f"{url}/v1", ca, token), odd))


class _Asking:
    def __init__(self, session: requests.Session, base: str, ca: str | bool, token: str) -> None:
        self._session, self._base, self._ca, self._token = session, base, ca, token

    def get(self, path: str, token: str = "") -> Json:
        headers = {"x-api-key": token or self._token}
        answer = self._session.get(f"{self._base}{path}", headers=headers, verify=self._ca, timeout=SECONDS)
        return answer.json() if answer.status_code == requests.codes.ok else answer.status_code


def _answers(ask: _Asking, odd: Collection[str]) -> Iterator[tuple[str, Json]]:
    for user in ask.get("/users?details=true")["users"]:
        if user["name"] not in odd:
            yield f"user {user['name']}", _user(user, odd)
            yield f"profile of {user['name']}", _user(ask.get("/users/profile", user["token"]), odd)
    for each in ask.get("/registrations")["user_registrations"]:
        if each["name"] not in odd:
            yield f"registration {each['uuid']}", each
    for project in ask.get("/projects")["projects"]:
        name = project["name"]
        if name in odd:
            continue
        yield f"project {name}", project
        for kind in ("topics", "subscriptions", "schemas"):
            for each in ask.get(f"/projects/{name}/{kind}")[kind]:
                short = each["name"].rpartition("/")[2]
                if f"{name}/{short}" not in odd:
                    yield from _of_one(ask, f"/projects/{name}/{kind}/{short}", kind, each)


def _of_one(ask: _Asking, place: str, kind: str, shown: Json) -> Iterator[tuple[str, Json]]:
    yield place, _shown(shown)
    if kind == "schemas":
        return
    yield f"{place}:acl", ask.get(f"{place}:acl")
    yield f"{place}:metrics", _counters(ask.get(f"{place}:metrics"))
    if kind == "subscriptions":
        yield f"{place}:offsets", ask.get(f"{place}:offsets")


def _user(user: Json, odd: Collection[str]) -> Json:
    """Return a user without expected differences: lists that were null, and memberships of deleted or odd projects."""
    if not isinstance(user, dict):
        return user
    kept = [each for each in user.get("projects", ()) if each["project"] and each["project"] not in odd]
    projects = sorted((
        {
            "project": each["project"], "roles": sorted(each["roles"] or ()),
            "topics": _plain(each, "topics", odd), "subscriptions": _plain(each, "subscriptions", odd),
        }
        for each in kept
    ), key=lambda each: str(each["project"]))  # fmt: skip
    return {**user, "projects": projects, "service_roles": user.get("service_roles") or []}


def _plain(entry: Mapping[str, Any], kind: str, odd: Collection[str]) -> list[str]:
    return sorted(each for each in entry.get(kind) or () if f"{entry['project']}/{each}" not in odd)


_THEIRS = {
    "topics": ("name", "schema", "created_on"),
    "subscriptions": ("name", "topic", "pushConfig", "ackDeadlineSeconds", "createdOn"),
    "schemas": ("uuid", "name", "type", "schema"),
}


def _shown(each: Json) -> Json:
    kind = each["name"].split("/")[-2]
    shown = {name: each[name] for name in _THEIRS[kind] if name in each}
    if kind == "subscriptions" and shown["pushConfig"]["retryPolicy"].get("period") == 0:
        del shown["pushConfig"]["retryPolicy"]["period"]  # of a policy that has none
    return shown


def _counters(metrics: Json) -> Json:
    if not isinstance(metrics, dict):
        return metrics
    return {
        each["metric"]: [point["value"] for point in each["timeseries"]]
        for each in metrics["metrics"]
        if each["metric_type"] == "counter" and each["metric"] != "subscription.number_of_lost_messages"  # ours alone
    }  # fmt: skip


def differences(old: Answers, new: Answers) -> list[str]:
    return [line for name in sorted(old.keys() | new.keys()) for line in _between(name, old.get(name), new.get(name))]


def _between(name: str, old: Json, new: Json) -> Iterator[str]:
    """Yield the differences, as near to their place as possible, without secrets."""
    if isinstance(old, dict) and isinstance(new, dict):
        for each in sorted(old.keys() | new.keys()):
            yield from _between(f"{name}: {each}", old.get(each), new.get(each))
    elif old == NEVER and name.endswith("modified_on"):
        return  # when it was made
    elif old != new and name.endswith(_SECRETS):
        yield f"{name} is another now"
    elif old != new:
        yield f"{name} was {old}, and is {new}"
