"""Compares the answers of two services to one request, except documented differences. Pure: no I/O.

Answers are compared as JSON, field by field. A difference is a `DifferenceKind`, named by its path (`users[].roles`),
whatever the values are. `RULES` lists the accepted differences, with reasons and documentation. Kinds hold no secrets.
"""

import itertools
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from ams.core.ack_ids import MAX_ACK_DEADLINE
from ams.core.names import is_name, is_uuid
from ams.core.push_config import HTTP_ENDPOINT, MATTERMOST, is_https
from ams.wire.actions import ACTIONS

MAX_SAME_NAME_ITEMS = 4  # compared items of one name in a list
EXAMPLE_CHARACTERS = 80  # of an example of each side
# Fields whose values are never shown, by name or by parent and name.
SECRETS = {"token", "activation_token", "verificationHash", "mattermostUrl", "authorizationHeader.value", "key"}


class Read(NamedTuple):
    """A request of the reference that only reads."""

    action: str  # of the contract, 3.4
    path: re.Pattern[str]
    writes: str = ""  # why the request changes something at the reference, if it does


_WRITES = {
    **dict.fromkeys(("ams:metrics", "users:usageReport"), "asking adds a record at the old service (O1)"),
    "subscriptions:offsets": "asking may move the subscription at the old service (11.3)",
}
_OF_REFERENCE = """
ams:healthStatus ams:metrics ams:vaMetrics version:list projects:list projects:listUsers projects:metrics projects:show
projects:showUser registrations:list registrations:show schemas:list schemas:show subscriptions:acl subscriptions:list
subscriptions:listByTopic subscriptions:metrics subscriptions:offsets subscriptions:show subscriptions:timeToOffset
topics:acl topics:list topics:metrics topics:show users:byToken users:byUUID users:list users:profile users:show
users:usageReport
"""
READS = [
    Read(name, re.compile("/v1" + re.sub(r"\{\w+\}", "[^/:]+", each.path)), _WRITES.get(name, ""))
    for name, each in ACTIONS.items()
    if name in _OF_REFERENCE.split()
]


def read_of(target: str) -> Read | None:
    """Return the action of a GET; None if it is not a read of the reference."""
    try:
        path = unquote(urlsplit(f"//-{target}").path if target.startswith("/") else urlsplit(target).path)
    except ValueError:
        return None
    return next((read for read in READS if read.path.fullmatch(path)), None)


class ServiceAnswer(NamedTuple):
    """Answer of a service."""

    status: int
    content_type: str
    body: bytes


class DifferenceKind(NamedTuple):
    """A kind of difference, with a short example without secrets."""

    where: str
    old: str
    new: str

    @property
    def place(self) -> tuple[str, bool, bool]:
        """Identity of the kind, without its example."""
        return self.where, self.old == repr(MISSING), self.new == repr(MISSING)


class _Missing:
    def __repr__(self) -> str:
        return "(missing)"


MISSING: Any = _Missing()  # stands for an absent value


def _is_none(value: Any) -> bool:
    return value is MISSING or value is None or value in ("", [])


def _are_numbers(old: Any, new: Any) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in (old, new))


def _are_texts(old: Any, new: Any) -> bool:
    return isinstance(old, str) and isinstance(new, str)


def _short(item: Any) -> str:
    name = item.get("name", item.get("project")) if isinstance(item, Mapping) else item
    return re.sub("^/?projects/.+/(topics|subscriptions|schemas)/", "", name) if isinstance(name, str) else ""


_ACCEPTED: Mapping[str, Callable[[Any, Any], bool]] = {  # how an old and a new value may differ
    "added": lambda old, _: old is MISSING,
    "left out": lambda _, new: new is MISSING,
    "none before": lambda old, _: _is_none(old),
    "both none": lambda old, new: _is_none(old) and _is_none(new),
    "hidden": lambda old, new: not _is_none(old) and _is_none(new),
    "numbers": _are_numbers,
    "fewer": lambda old, new: new is MISSING or (_are_numbers(old, new) and new < old),
    "more often": lambda old, new: old > new,
    "nearly": lambda old, new: _are_numbers(old, new) and math.isclose(old, new, rel_tol=0.05, abs_tol=0.01),
    "cut deadline": lambda old, new: _are_numbers(old, new) and new == min(max(old, 0), MAX_ACK_DEADLINE),
    "texts": _are_texts,
    "pages": lambda old, new: _are_texts(old, new) and bool(old) == bool(new),
    "year 1": lambda old, _: _is_none(old) or (isinstance(old, str) and old.startswith("0001-01-01")),
    "no uuid": lambda old, new: _are_texts(old, new) and not is_uuid(old),
    "no project": lambda old, new: new is MISSING and isinstance(old, Mapping) and not old.get("project"),
    "bad name": lambda old, new: new is MISSING and bool(_short(old)) and not is_name(_short(old)),
    "renamed": lambda old, new: (
        _are_texts(old, new) and not is_name(old) and new.startswith(re.sub("[^A-Za-z0-9_-]", "_", old))
    ),
}


def _olds(leaf: "_Leaf") -> Iterator[Mapping[str, Any]]:
    return (old for old, _ in leaf.above if isinstance(old, Mapping))


def _in_pull(leaf: "_Leaf") -> bool:
    """Return whether its push configuration delivers nothing: no type, or an endpoint without https."""
    for each in _olds(leaf):
        if "pushEndpoint" in each:
            return not each.get("type") or (each["type"] == HTTP_ENDPOINT and not is_https(str(each["pushEndpoint"])))
    return False


def _in_mattermost(leaf: "_Leaf") -> bool:
    return any(each.get("type") == MATTERMOST for each in _olds(leaf))


def _in_reduced(leaf: "_Leaf") -> bool:
    return any(
        "token" in old and "token" not in new
        for old, new in leaf.above
        if isinstance(old, Mapping) and isinstance(new, Mapping)
    )


def _in_repeated(leaf: "_Leaf") -> bool:
    lists = [each for each in leaf.above[-1][0].values() if isinstance(each, list)]
    return any(len(each) > len({_identity(item, place) for place, item in enumerate(each)}) for each in lists)


def _beside_bad_name(leaf: "_Leaf") -> bool:
    old = leaf.above[-1][0]
    return isinstance(old, list) and any(not is_name(_short(each)) for each in old)


def _of_two_of_a_token(leaf: "_Leaf") -> bool:
    token = leaf.old.get("token") if isinstance(leaf.old, Mapping) else ""
    tokens = [each.get("token") for each in leaf.above[-1][0] if isinstance(each, Mapping)]
    return bool(token) and tokens.count(token) > 1


class Rule(NamedTuple):
    """An accepted difference."""

    source: str  # a section or id of `docs/contract/api.md`, an id of `docs/reference/differences.md`, or a how-to
    why: str
    actions: str  # a regular expression of actions
    where: str  # a regular expression of paths
    differs: str | Sequence[tuple[int, int]] | None = None  # how values differ (`_ACCEPTED`), or pairs; None: any
    within: "Callable[[_Leaf], bool] | None" = None  # whether their place is accepted
    only: Literal["", "others", "moving"] = ""  # no service_admin asks; somebody publishes or consumes


_MOVE, _SHADOW = "how-to move-from-the-reference", "how-to compare-with-the-reference"
_USER = "users:.*|projects:(listUsers|showUser)"
_MEMBER = "projects:(listUsers|showUser)"
_USAGE = "ams:vaMetrics|users:usageReport"
_SUBSCRIPTION = "subscriptions:(list|show)"
_TIMES = r".*(created_on|createdOn|modified_on|registered_at|modified_at)"
_LISTS = r"(.*\.)?(users|topics|subscriptions|projects|schemas)\[\]"
RULES: Sequence[Rule] = (
    # How answers look
    Rule("O7", "errors say that they are JSON", ".*", "content type of an error"),
    Rule("contract 1.3", "an unknown path is told in JSON", ".*", "body that is no JSON of a 404"),
    Rule("O8", "an error is one answer", ".*", "second value in the body of an error"),
    Rule("contract 4", "a page token means something to who gave it", ".*", "nextPageToken", "pages"),
    Rule("contract 7", "no projects are an empty list", "projects:list", "projects", "both none"),
    Rule("U7", "lists are never null", _USER, r".*(roles|projects|topics|subscriptions)", "both none"),
    Rule("contract 5.1", "these have no order", _USER, r".*(projects|roles|topics|subscriptions)\[\] order"),
    Rule("contract 14.4", "projects have no order", _USAGE, r".*projects\[\] order"),
    # Access
    Rule("O6", "401 and 403 the right way round", "ams:healthStatus", "status", [(401, 403), (403, 401)]),
    Rule("A5", "the access list counts", "subscriptions:offsets", "status", [(200, 403)], only="others"),
    Rule("A5", "the access list counts", "subscriptions:timeToOffset", "status", [(200, 403)], only="others"),
    Rule("contract 3.5", "administrators pass", ".*:metrics", "status", [(403, 200)], only="others"),
    Rule("contract 3.4", "other roles", "ams:.*|users:list", "status", [(200, 401), (200, 403)], only="others"),
    Rule("A14", "not for all", "subscriptions:.*", r".*(verificationHash|Header\.value)", "hidden", only="others"),
    Rule("T3", "tokens may be shown once only", _USER, r".*token", "hidden"),
    Rule(
        "U3", "reduced view", _MEMBER, r".*(token|created_by|_roles\[\]|projects\[\])", "hidden", _in_reduced, "others"
    ),
    # Fields of ours, which clients pass over
    Rule("contract 7", "how long messages are kept", "projects:(list|show)", r".*retentionSeconds", "added"),
    Rule("contract 8", "how long messages are kept", "topics:.*", r".*retentionSeconds", "added"),
    Rule("contract 9.1", "slowstart shows a period", _SUBSCRIPTION, r".*retryPolicy\.period", "added"),
    Rule("contract 14.3", "ours", ".*:metrics", r"metrics\[subscription\.number_of_lost_messages\]", "added"),
    # About the service
    Rule("contract 14.6", "another program", "version:list", "[a-z_]+"),
    Rule("contract 11.4", "times as they are", "subscriptions:timeToOffset", "status", [(400, 200), (400, 409)]),
    Rule("contract 13.6", "who delivers, in its own words", ".*", r"pushStatus|push_servers(\[\].*)?"),
    # Counters
    Rule("O1", "what a node uses, once", "ams:metrics|users:usageReport", r"(operational_metrics\.)?metrics(\[.*)?"),
    Rule("O3", "users are counted", _USAGE, r".*users_count", "numbers"),
    Rule("O4", "projects without messages are there", _USAGE, r".*projects(\[\])?", "none before"),
    Rule("O4", "so is what they hold", _USAGE, r"(.*\.)?total_(topics|subscriptions)_count", "numbers"),
    Rule("O5", "rates go over, not the times they are of", ".*:metrics", r".*rate\]\.timeseries\[\]\.value", "nearly"),
    Rule("contract 14", "own clocks", ".*:metrics", r"metrics\[(?!.*rate\]).*\]\.timeseries\[\]\.timestamp", "texts"),
    Rule("contract 14", "words about a metric", ".*:metrics", r"metrics\[.*\]\.description"),
    Rule("U13", "not of an earlier topic", ".*:metrics", r".*daily_messages\]\.timeseries\[\].*", "fewer"),
    Rule(_MOVE, "the end of a topic", "topics:metrics", r".*number_of_messages\]\.timeseries\[\]\.value", "numbers"),
    Rule(_MOVE, "days add up to it", "topics:metrics", r".*daily_messages\]\.timeseries\[\].*"),
    # Effects of a move on stored data
    Rule("U12", "memberships of projects that are gone", _USER, r".*projects\[\]", "no project"),
    Rule("U14", "one membership for each project", _USER, r".*projects\[\] repeated"),
    Rule("U11", "one of each name", ".*:(list|acl|listByTopic)", r".*\[\] repeated", "more often"),
    Rule("U11", "of each once", _USER, r".*(topics|subscriptions)\[\] repeated", "more often"),
    Rule("U11", "one of each name", ".*:list", "totalSize", "fewer", _in_repeated),
    Rule("U5", "one pending registration", "registrations:list", r"user_registrations\[\]", "left out"),
    Rule("A11", "mattermost has no header", _SUBSCRIPTION, r".*authorizationHeader\.type", "hidden", _in_mattermost),
    Rule(_MOVE, "pulled from, as it was", _SUBSCRIPTION, r".*pushConfig\..*", within=_in_pull),
    Rule(_MOVE, "a deadline is 0 to 600 seconds", _SUBSCRIPTION, r".*ackDeadlineSeconds", "cut deadline"),
    Rule(_MOVE, "when it was made", ".*", _TIMES, "year 1"),
    Rule(_MOVE, "a uuid that was none", ".*", r".*uuid", "no uuid"),
    Rule(_MOVE, "a name nobody could ask for", ".*", _LISTS, "bad name"),
    Rule(_MOVE, "its new name", ".*", "(.*\\.)?(name|project)", "renamed"),
    Rule(_MOVE, "a token where there was none", _USER, "(.*\\.)?token", "added"),
    Rule(_MOVE, "of two users of a token the oldest", "users:list", r"users\[\]", "left out", _of_two_of_a_token),
    Rule(_MOVE, "its new name", ".*", _LISTS, "added", _beside_bad_name),
    # Traffic meanwhile
    Rule(_SHADOW, "messages come and go", "subscriptions:offsets", "min|max|current", "numbers", only="moving"),
    Rule(_SHADOW, "messages come and go", "subscriptions:timeToOffset", "offset", "numbers", only="moving"),
    Rule(_SHADOW, "so they do", "subscriptions:timeToOffset", "status", [(200, 409), (409, 200)], only="moving"),
    Rule(_SHADOW, "counters go on", ".*:metrics", r"metrics\[.*\]\.timeseries(\[\].*)?", only="moving"),
    Rule(_SHADOW, "counters go on", _USAGE, r".*(count|average_daily_messages)", "numbers", only="moving"),
)


def different(
    action: str, old: ServiceAnswer, new: ServiceAnswer, *,
    still: bool = False, admin: bool = False, secrets: Collection[str] = (), rules: Sequence[Rule] = RULES,
) -> list[DifferenceKind]:  # fmt: skip
    """Return the differences between two answers that no rule accepts, each kind once.

    Args:
        still: Nothing changed meanwhile, so counters and positions must be equal too.
        admin: A service_admin sent the request.
        secrets: Texts to mask, such as the caller's token.
    """
    held = [each for each in rules if not ((each.only == "moving" and still) or (each.only == "others" and admin))]
    kinds: dict[tuple[str, bool, bool], DifferenceKind] = {}
    try:
        leaves = list(_answers(old, new))
    except RecursionError:
        leaves = [_Leaf("body that is nested too deeply", MISSING, MISSING)]
    for leaf in leaves:
        key = (leaf.where, leaf.old is MISSING, leaf.new is MISSING)
        if key not in kinds and not any(_is_right(each, action, leaf) for each in held):
            kinds[key] = DifferenceKind(_mask_secrets(leaf.where, secrets), *_example_of(leaf, secrets))
    return list(kinds.values())


Above = tuple[tuple[Any, Any], ...]  # ancestors of a value on both sides, nearest last


class _Leaf(NamedTuple):
    where: str
    old: Any
    new: Any
    above: Above = ()


def _is_right(rule: Rule, action: str, leaf: _Leaf) -> bool:
    if not re.fullmatch(rule.where, leaf.where) or not re.fullmatch(rule.actions, action):
        return False
    if isinstance(rule.differs, str):
        is_accepted = _ACCEPTED[rule.differs](leaf.old, leaf.new)
    else:
        is_accepted = rule.differs is None or (leaf.old, leaf.new) in rule.differs
    return is_accepted and (rule.within is None or rule.within(leaf))


def _answers(old: ServiceAnswer, new: ServiceAnswer) -> Iterator[_Leaf]:
    if old.status != new.status:
        yield _Leaf("status", old.status, new.status)
        return
    is_error = old.status >= 400
    of_error = " of an error" if is_error else ""
    one, other = (each.content_type.lower().replace(" ", "") for each in (old, new))
    if one != other:
        yield _Leaf(f"content type{of_error}", old.content_type, new.content_type)
    if old.body == new.body:
        return
    (one_body, one_more), (other_body, other_more) = _json(old.body), _json(new.body)
    if isinstance(one_body, _Text) or isinstance(other_body, _Text):
        yield _Leaf("body that is no JSON" + (f" of a {old.status}" if is_error else ""), one_body, other_body)
        return
    if one_more != other_more:
        yield _Leaf(f"second value in the body{of_error}", one_more, other_more)
    yield from _values("", one_body, other_body, ())


class _Text(str):
    """A body that is not JSON."""

    __slots__ = ()


_decode = json.JSONDecoder(parse_constant=str).raw_decode


def _json(body: bytes) -> tuple[Any, bool]:
    """Return the first JSON value of a body, and whether more follows; the text itself if it is not JSON."""
    if not (text := body.decode(errors="replace").strip()):
        return MISSING, False
    try:
        value, end = _decode(text)
    except (ValueError, RecursionError):
        return _Text(text), False
    if end < len(text) and not isinstance(value, dict):
        return _Text(text), False
    return value, end < len(text)


def _values(where: str, old: Any, new: Any, above: Above) -> Iterator[_Leaf]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old | new:
            one, other = old.get(name, MISSING), new.get(name, MISSING)
            yield from _values(f"{where}.{name}".removeprefix("."), one, other, (*above, (old, new)))
    elif isinstance(old, list) and isinstance(new, list):
        yield from _lists(where, old, new, (*above, (old, new)))
    elif (type(old) is not type(new) and not _are_numbers(old, new)) or old != new:
        yield _Leaf(where or "body", old, new, above)


def _lists(where: str, old: Sequence[Any], new: Sequence[Any], above: Above) -> Iterator[_Leaf]:
    """Compare items by identity, then their order; items without identity by position."""
    ones, others = _by_identity(old), _by_identity(new)
    repeated = len(old) - len(ones), len(new) - len(others)
    if repeated[0] != repeated[1]:
        yield _Leaf(f"{where}[] repeated", *repeated, above)
    for identity in ones | others:
        found: list[list[_Leaf]] = []
        for one, other in itertools.product(
            ones.get(identity, [MISSING])[:MAX_SAME_NAME_ITEMS], others.get(identity, [MISSING])[:MAX_SAME_NAME_ITEMS]
        ):
            item = one if other is MISSING else other
            label = str(item["metric"]) if isinstance(item, Mapping) and "metric" in item else ""
            found.append(list(_values(f"{where}[{label}]", one, other, above)))
        yield from min(found, key=len)
    single = {each for each in ones if len(ones[each]) == 1} & {each for each in others if len(others[each]) == 1}
    for first, second in zip(*([each for each in ids if each in single] for ids in (ones, others)), strict=True):
        if first != second:
            yield _Leaf(f"{where}[] order", str(first[1]), str(second[1]), above)
            return


def _by_identity(items: Sequence[Any]) -> dict[tuple[Any, ...], list[Any]]:
    found: dict[tuple[Any, ...], list[Any]] = {}
    for place, each in enumerate(items):
        found.setdefault(_identity(each, place), []).append(each)
    return found


def _identity(item: Any, place: int) -> tuple[Any, ...]:
    if isinstance(item, str | int | float):
        return (type(item).__name__, item)
    if not isinstance(item, Mapping):
        return ("place", place)
    if "metric" in item:
        return ("metric", str(item["metric"]), str(item.get("resource_name")))
    if isinstance(item.get("name"), str):
        return ("name", item["name"], str(item.get("uuid")) if "registered_at" in item else "")
    for name in ("project", "endpoint"):
        if isinstance(item.get(name), str):
            return (name, item[name])
    if len(str(item.get("timestamp", ""))) == len("YYYY-MM-DD"):
        return ("day", str(item["timestamp"]))
    return ("place", place)


_HEX = re.compile(r"[0-9A-Fa-f]{32,}")
_URL = re.compile(r"(https?://)(?:[^/\s?#\"'@]*@)?([^/\s?#\"']*)[/?#]?[^\s\"']*", re.IGNORECASE)
_LONG_TEXT = re.compile(r"[\w+/=.-]{20,}")
_STARS = "***"


def _mask_secrets(text: str, secrets: Collection[str]) -> str:
    for each in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(each, _STARS)
    text = _URL.sub(rf"\1\2/{_STARS}", _HEX.sub(_STARS, text))
    return text if len(text) <= EXAMPLE_CHARACTERS else f"{text[: EXAMPLE_CHARACTERS - 3]}..."


def _example_of(leaf: _Leaf, secrets: Collection[str]) -> tuple[str, str]:
    names = [each.partition("[")[0] for each in leaf.where.split(".")]
    if SECRETS.intersection(names + [f"{one}.{other}" for one, other in itertools.pairwise(names)]):
        return _secret(leaf.old, "(a secret)"), _secret(leaf.new, "(a secret)" if _is_none(leaf.old) else "(another)")
    return _text(leaf.old, secrets), _text(leaf.new, secrets)


def _secret(value: Any, word: str) -> str:
    return repr(MISSING) if value is MISSING else "(none)" if _is_none(value) else word


def _text(value: Any, secrets: Collection[str]) -> str:
    if isinstance(value, Mapping):
        name = value.get("name", value.get("project", value.get("metric")))
        return _mask_secrets(f"an object, {name}" if isinstance(name, str) else "an object", secrets)
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, _Text):
        return _mask_secrets(_LONG_TEXT.sub(_STARS, value), secrets)
    if isinstance(value, str):
        return _mask_secrets(value, secrets) or '""'
    return repr(value) if value is MISSING else json.dumps(value)
