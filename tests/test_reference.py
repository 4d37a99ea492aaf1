"""The pages of the reference agree with the contract's rows, and their errors are asked for."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ams.pubsub import protos
from ams.pubsub.resources import SUBSCRIPTION_REFUSED, TOPIC_REFUSED
from tests.access.table import REFERENCE_PAGES, ROUTE_ROLES, SHOWN_ROUTES
from tests.contract.rows import Like, Request
from tests.contract.test_contract import ROWS

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"

PAGES = [page for page in REFERENCE_PAGES if page not in ("http", "audit", "openid-connect")]
"""Pages whose errors the rows of the contract ask for."""
ERROR = re.compile(r"^\| (\d{3}) `(\w+)` \| (`.+?`) \| (.+?) \|", re.MULTILINE)
"""A row of a table of errors: code, word, text, and the routes that answer it."""
PAGED = r"GET /projects/P/(topics|subscriptions|snapshots|members)|GET /users"
COMMON = {"Invalid page size": PAGED, "Invalid page token": PAGED,
          "Topic doesn't exist": r"(?!PUT)\w+ /projects/P/topics/T\b.*",
          "Subscription doesn't exist": r"(?!PUT)\w+ /projects/P/subscriptions/S\b.*",
          "Snapshot doesn't exist": r"(?!PUT)\w+ /projects/P/snapshots/N",
          "Schema doesn't exist": r"(GET|PUT|DELETE) /projects/P/schemas/X|\w+ /projects/P/schemas/X:.*",
          "User doesn't exist": r"(GET|PUT|DELETE) .*/U|\w+ .*/U:.*|\w+ /users/U/tokens.*|GET /users:.*"}  # fmt: skip
"""Errors of many routes, which the page of the HTTP API has once, and the routes that answer them."""
CODES = {"Invalid page size": (400, "INVALID_ARGUMENT"), "Invalid page token": (400, "INVALID_ARGUMENT")}
ASKED_ELSEWHERE = {
    "Idempotency-Key is given more than once",  # a row has no two headers of one name: tests/http/test_messages.py
    "application/vnd.apache.arrow.stream needs pyarrow, which is not installed here; "
    "application/x-ndjson is always there",
    # of a publish that was not: tests/service/test_dead_letters.py
    "Message is too large for the dead letter topic",
    "A user has at most 100 named tokens: revoke one that is not used any more",  # tests/service/test_users.py
    # of two pulls at a time: tests/http/test_rates.py
    "Quota waitingPulls of the project is exceeded: its limit is N",
    "Invalid filter: it has more than 256 bytes",  # tests/pubsub/test_subscriptions.py
    "A project has at most 5000 snapshots",  # tests/storage/registry/test_schemas.py
    # of a pull: push would have to be switched off: tests/service/push/test_configurations.py
    "Push functionality is currently disabled",
}
"""Errors that no row of the contract can provoke; pyarrow is missing in tests/http/test_streaming.py."""


def text(page: str) -> str:
    return (REFERENCE / f"{page}.md").read_text()


@pytest.mark.parametrize("page", PAGES)
def test_a_row_of_the_contract_asks_every_route_of_a_page_for_every_error(page: str) -> None:
    shown = list(errors(page))
    missing = [
        (method, path, message)
        for code, word, message, routes in shown
        for method, path in routes
        if message not in ASKED_ELSEWHERE and not is_asked(method, path, (int(code), word, message))
    ]

    assert shown
    assert missing == []


@pytest.mark.parametrize("message", COMMON)
def test_a_row_of_the_contract_asks_every_route_for_the_errors_of_many_routes(message: str) -> None:
    error = (*CODES.get(message, (404, "NOT_FOUND")), message)
    routes = [route for route in ROUTE_ROLES if re.fullmatch(COMMON[message], " ".join(route))]

    assert f"`{message}`" in text("http")
    assert routes
    assert [route for route in routes if not is_asked(*route, error)] == []


def test_a_row_of_the_contract_asks_every_route_that_an_access_list_guards() -> None:
    error = (403, "FORBIDDEN", "Access to this resource is forbidden")
    guarded = [(method, path) for routes in SHOWN_ROUTES.values() for method, path, roles in routes if "*" in roles]

    assert guarded
    assert [route for route in guarded if not is_asked(*route, error)] == []


def test_each_route_is_on_one_page() -> None:
    shown = [(method, path) for routes in SHOWN_ROUTES.values() for method, path, _ in routes]
    assert sorted(shown) == sorted(set(shown))


def errors(page: str) -> Iterator[tuple[str, str, str, list[tuple[str, str]]]]:
    """Yield each error of a page, with the routes that its row names: `:verb`, or a method and the end of a path."""
    for code, word, message, named in ERROR.findall(text(page)):
        routes: list[tuple[str, str]] = []
        for name in re.findall(r"`(.+?)`", named):
            found = [(method, path) for method, path, _ in SHOWN_ROUTES[page] if is_named(method, path, name)]
            assert found, f"{page}: {name} names no route"
            routes += found
        assert routes, f"{page}: {message} is of no route"
        yield code, word, message.strip("`"), routes


def is_named(method: str, path: str, name: str) -> bool:
    wanted, _, end = name.rpartition(" ") if " " in name else ("", "", name)
    if ":" in end:
        return wanted in ("", method) and (path.endswith(end) if end[0] == ":" else path.endswith("/" + end))
    wanted, end = (wanted, end) if wanted else (end, "")
    return method == wanted and ":" not in path and (path == end or path.endswith("/" + end) if end else True)


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


def contract(page: str) -> str:
    return (ROOT / "docs" / "contract" / f"{page}.md").read_text()


DIFFERENCE = re.compile(r"^\| ([MAUO]\d+) \|.*\| (.+?) \|$", re.MULTILINE)
NAMED_TEST = re.compile(r'def (test_\w+)\([^)]*\)(?: -> None)?:\n    """17\.\d ([MAUO]\d+)\b')
"""A test whose docstring begins with the id of a defect."""
DEFECTS = [f"{part}{n}" for part, last in (("M", 12), ("A", 14), ("U", 14), ("O", 14)) for n in range(1, last + 1)]


def test_every_difference_names_the_test_that_shows_it_and_the_test_names_the_difference() -> None:
    shown = {f"{line.split()[-1]}: {row.says}" for row in ROWS for line in row.lines if line.startswith("17.")}
    shown |= {f"{name}: {test}" for test, name in NAMED_TEST.findall(sources())}
    named = [(name, test.strip("`")) for name, test in DIFFERENCE.findall(contract("api"))]

    assert [name for name, _ in named] == DEFECTS
    assert [(name, test) for name, test in named if f"{name}: {test}" not in shown] == []


@pytest.mark.parametrize(("page", "kind", "last"), [("push", "P", 34), ("certificates", "A", 26)])
def test_every_row_of_the_contract_about_a_difference_names_a_test(page: str, kind: str, last: int) -> None:
    named = dict(re.findall(rf"^\| ({kind}\d+) \|.*\| (?:`(test_\w+)` )?\|$", contract(page), re.MULTILINE))

    assert list(named) == [f"{kind}{number}" for number in range(1, last + 1)]
    as_in_the_reference = {"P33"}
    tests = {name: test for name, test in named.items() if name not in as_in_the_reference}
    assert [test for test in tests.values() if f"def {test}(" not in sources()] == []
    if kind == "A":
        assert [test for name, test in tests.items() if not test.startswith(f"test_{name.lower()}_")] == []


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
