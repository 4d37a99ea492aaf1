"""The pages of the reference agree with the table of permissions, the overview, and the contract's rows."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ams.pubsub import protos
from ams.pubsub.resources import SUBSCRIPTION_REFUSED, TOPIC_REFUSED
from tests.access.table import OVERVIEW_ROWS, roles_of
from tests.contract.rows import Like, Request
from tests.contract.test_contract import ROWS

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"

BELONGS = {
    "topics": r"/projects/P/topics", "subscriptions": r"/projects/P/subscriptions",
    "snapshots": r"/projects/P/snapshots", "members": r"/projects/P/members", "projects": r"/projects(/P(:\w+)?)?$",
    "users": r"/users(?!/U/(tokens|bindings))", "openid-connect": r"/users/U/bindings|/issuers",
    "tokens": r"/users/U/tokens", "registrations": r"/registrations", "schemas": r"/projects/P/schemas",
    "access-lists": r".*:(acl|modifyAcl)$",
}  # fmt: skip
"""The routes of each page."""
PAGES = sorted(BELONGS)

ROUTE = re.compile(r"^### `(\w+) (\S+)`\n\nRoles: (.+)$", re.MULTILINE)
ERROR = re.compile(r"^\| (\d{3}) `(\w+)` \| `(.+?)` \|", re.MULTILINE)
ASKED_ELSEWHERE = {
    "Idempotency-Key is given more than once",  # a row has no two headers of one name: tests/http/test_messages.py
    "application/vnd.apache.arrow.stream needs pyarrow, which is not installed here; "
    "application/x-ndjson is always there",
    # of a publish that was not: tests/service/test_dead_letters.py
    "Message is too large for the dead letter topic",
    "A user has at most 100 named tokens: revoke one that is not used any more",  # tests/service/test_users.py
    # of two pulls at a time: tests/http/test_rates.py
    "Quota waitingPulls of the project is exceeded: its limit is N",
    "A project has at most 5000 snapshots",  # tests/storage/registry/test_schemas.py
    # of a pull: push would have to be switched off: tests/service/push/test_pushing.py
    "Push functionality is currently disabled",
}
"""Errors that no row of the contract can provoke; pyarrow is missing in tests/http/test_streaming.py."""


def text(page: str) -> str:
    return (REFERENCE / f"{page}.md").read_text()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_every_route_of_its_resource(page: str) -> None:
    own = [f"{method} {path}" for method, path in OVERVIEW_ROWS if re.match(BELONGS[page], path)]
    assert own
    assert [route for route in own if f"`{route}`" not in text(page)] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_roles_of_a_page_are_those_of_the_overview(page: str) -> None:
    shown = {(method, path): set(roles.split(", ")) for method, path, roles in ROUTE.findall(text(page))}
    assert shown
    assert shown == {route: roles_of(*route) for route in shown}


@pytest.mark.parametrize("page", PAGES)
def test_a_row_of_the_contract_asks_every_route_of_a_page_for_every_error(page: str) -> None:
    missing = [
        (method, path, message)
        for method, path, errors in sections(page)
        for code, word, message in ERROR.findall(errors)
        if message not in ASKED_ELSEWHERE and not is_asked(method, path, (int(code), word, message))
    ]

    assert missing == []


def sections(page: str) -> Iterator[tuple[str, str, str]]:
    parts = re.split(r"^#+ (?:`(\w+) (\S+)`)?.*\n", text(page), flags=re.MULTILINE)
    for method, path, below in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        if method:
            yield method, path, below


def is_asked(method: str, path: str, error: tuple[int, str, str]) -> bool:
    """Return whether a row of the contract requests this route and gets this error."""
    code, word, message = error
    place, says = re.compile(pattern_of(path) + r"(\?.*)?"), re.compile(pattern_of(message))
    return any(
        (code, word) == shown[:2] and ask.method == method and place.fullmatch(ask.path) and says.fullmatch(shown[2])
        for ask, shown in ASKED
    )


def pattern_of(documented: str) -> str:
    """Return a pattern for a path or text with names in capital letters."""
    return re.sub(r"\b(REASON|TOKEN|UUID|[A-Z](,\\ [A-Z])*)\b", ".+", re.escape(documented))


def literal_errors() -> Iterator[tuple[Request, tuple[int, str, str]]]:
    """Yield every request of the rows with a literal error, and the error."""
    for row in ROWS:
        for ask, answer in ((row.ask, row.gets), *row.then):
            error = answer.body.get("error") if answer is not None and isinstance(answer.body, dict) else None
            if isinstance(ask, Request) and isinstance(error, dict):
                message = error["message"]
                said = message.pattern if isinstance(message, Like) else str(message)
                yield ask, (error["code"], error["status"], said)


ASKED = list(literal_errors())


@cache
def sources() -> str:
    return "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))


DIFFERENCE = re.compile(r"^\| ([MAUO]\d+) \|.*\| (.+?) \|$", re.MULTILINE)
NAMED_TEST = re.compile(r'def (test_\w+)\([^)]*\)(?: -> None)?:\n    """17\.\d ([MAUO]\d+)\b')
"""A test whose docstring begins with the id of a defect."""
DEFECTS = [
    f"{part}{number}" for part, last in (("M", 12), ("A", 14), ("U", 14), ("O", 14)) for number in range(1, last + 1)
]


def test_every_difference_names_the_test_that_shows_it_and_the_test_names_the_difference() -> None:
    shown = {f"{line.split()[-1]}: {row.says}" for row in ROWS for line in row.lines if line.startswith("17.")}
    shown |= {f"{name}: {test}" for test, name in NAMED_TEST.findall(sources())}
    named = [(name, test.strip("`")) for name, test in DIFFERENCE.findall(text("differences"))]

    assert [name for name, _ in named] == DEFECTS
    assert [(name, test) for name, test in named if f"{name}: {test}" not in shown] == []


@pytest.mark.parametrize(
    ("kind", "ids"),
    [("P", {*range(1, 35)} - {33}), ("authn A", {*range(1, 27)})],  # P33 is as in the reference
)
def test_every_difference_of_push_delivery_and_certificates_names_a_test(kind: str, ids: set[int]) -> None:
    named = dict(re.findall(rf"^\| ({kind}\d+) \|.*\| `(test_\w+)` \|$", text("differences"), re.MULTILINE))

    assert list(named) == [f"{kind}{number}" for number in sorted(ids)]
    assert [test for test in named.values() if f"def {test}(" not in sources()] == []
    if kind == "authn A":
        assert [test for name, test in named.items() if not test.startswith(f"test_{name[6:].lower()}_")] == []


PUBSUB_REQUESTS = sorted({"Topic", "Subscription", *(name for name in vars(protos) if name.endswith("Request"))})
"""CreateTopic and CreateSubscription ask with the resource itself."""
AS_A_WHOLE = {
    *TOPIC_REFUSED, *SUBSCRIPTION_REFUSED, "compiled_proto_schema", "analytics_hub_subscription_info", "audit_configs",
}  # fmt: skip
"""Refused or ignored, whatever their contents."""


def fields_of(message: Any) -> Iterator[str]:
    """Yield the names of a message's fields, and of those of nested messages."""
    if message.GetOptions().map_entry:  # a map has keys and values, not fields
        return
    for field in message.fields:
        yield field.name.rstrip("_")  # the library spells `type` with one
        inner = field.message_type
        packages = ("google.pubsub.v1", "google.iam.v1")
        if inner is not None and inner.file.package in packages and field.name not in AS_A_WHOLE:
            yield from fields_of(inner)


@pytest.mark.parametrize("request_type", PUBSUB_REQUESTS)
def test_the_page_of_pubsub_names_every_field_of_a_request(request_type: str) -> None:
    fields = set(fields_of(getattr(protos, request_type).DESCRIPTOR))
    assert fields
    assert fields - set(re.findall(r"`([a-z_]+)`", text("pubsub"))) == set()
