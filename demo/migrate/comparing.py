"""Answers of both services beside each other, less what is documented to differ."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import requests

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
        """Return the answer, or its code when that is not 200."""
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
    """Return a user less what differs: lists that were null, and members of what is gone or is odd itself."""
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
    """Return the fields that both services have."""
    kind = each["name"].split("/")[-2]
    shown = {name: each[name] for name in _THEIRS[kind] if name in each}
    if kind == "subscriptions" and shown["pushConfig"]["retryPolicy"].get("period") == 0:
        del shown["pushConfig"]["retryPolicy"]["period"]  # of a policy that has none
    return shown


def _counters(metrics: Json) -> Json:
    """Return counters with their values: rates differ a little, and points have the time they were asked at."""
    if not isinstance(metrics, dict):
        return metrics
    return {
        each["metric"]: [point["value"] for point in each["timeseries"]]
        for each in metrics["metrics"]
        if each["metric_type"] == "counter" and each["metric"] != "subscription.number_of_lost_messages"  # ours alone
    }  # fmt: skip


def differences(old: Answers, new: Answers) -> list[str]:
    """Return what is not the same, one a line."""
    return [line for name in sorted(old.keys() | new.keys()) for line in _between(name, old.get(name), new.get(name))]


def _between(name: str, old: Json, new: Json) -> Iterator[str]:
    """Yield what is not the same, as near to it as can be said; secrets are not shown."""
    if isinstance(old, dict) and isinstance(new, dict):
        for each in sorted(old.keys() | new.keys()):
            yield from _between(f"{name}: {each}", old.get(each), new.get(each))
    elif old == NEVER and name.endswith("modified_on"):
        return  # when it was made
    elif old != new and name.endswith(_SECRETS):
        yield f"{name} is another now"
    elif old != new:
        yield f"{name} was {old}, and is {new}"
