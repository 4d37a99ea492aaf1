"""The steps of a request: which step a function belongs to, by its file.

Files come and go. One without a rule of its own belongs to its package, and what belongs to none to whoever called it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

OTHER = "the event loop, and what is in no other row"


class Rule(NamedTuple):
    """Functions of a step: `FUNCTION FILE` begins with `function`, and the file with `file`."""

    file: str
    function: str
    step: str


PARSE = "parse HTTP; begin and end a request"
ROUTE = "tell what is asked, and put the answer's head before it"
RIGHTS = "who is this, and may they do it"
BODY = "take in the body, within its limits"
DECODE = "decode and check the body, make what is stored"
CASE = "the use case"
HAND_OVER = "hand over to the thread that stores"
SHOW = "take back what is stored, show it to readers"
READ = "read from the log"
CURSOR = "where the subscription stands"
COUNT = "note it for the counters"
ANSWER = "make the answer's body"
SEND = "write the answer to the socket"

_LOG = "ams/storage/log/"
RULES = (
    Rule("uvloop", "", SEND),
    Rule("ams/http/messages", "published", ANSWER),
    Rule("ams/http/messages", "pulled", ANSWER),
    Rule("bench/bare", "publish", DECODE),
    Rule("bench/bare", "", ROUTE),
    Rule("ams/http/messages", "", DECODE),
    Rule("ams/core/messages", "sent_bytes", READ),
    Rule("ams/core/messages", "", DECODE),
    Rule("ams/core/runs", "", READ),
    Rule("ams/core/names", "ack_", DECODE),
    Rule("ams/wire/", "", DECODE),
    Rule("ams/validation/", "", DECODE),
    Rule("ams/http/limits", "", BODY),
    Rule("ams/http/fast", "Gate", RIGHTS),
    Rule("ams/http/fast", "FastRoutes.known", RIGHTS),
    Rule("ams/http/fast", "FastRoutes.is_still", RIGHTS),
    Rule("ams/access/", "", RIGHTS),
    Rule("ams/core/names", "", RIGHTS),
    Rule("ams/core/rights", "", RIGHTS),
    Rule("ams/storage/database/", "", RIGHTS),
    Rule("ams/storage/registry/", "", RIGHTS),
    Rule("ams/service/lookup", "", RIGHTS),
    Rule("ams/service/publishing", "Publisher.topic", RIGHTS),
    Rule("ams/service/counting", "", COUNT),
    Rule("ams/storage/cursors/", "", CURSOR),
    Rule("ams/service/delivering", "", CURSOR),
    Rule(f"{_LOG}embedded/log", "EmbeddedLog._tell", SHOW),
    Rule(f"{_LOG}embedded/log", "EmbeddedLog._apply", SHOW),
    Rule(f"{_LOG}embedded/log", "EmbeddedLog._stored", SHOW),
    Rule(f"{_LOG}embedded/state", "", SHOW),
    Rule(f"{_LOG}embedded/segment_index", "Entries", READ),
    Rule(f"{_LOG}embedded/segment_index", "", SHOW),
    Rule(f"{_LOG}embedded/catalog", "", SHOW),
    Rule(f"{_LOG}embedded/reader", "", READ),
    Rule(f"{_LOG}embedded/pages", "", READ),
    Rule(f"{_LOG}embedded/recent", "", READ),
    Rule(f"{_LOG}embedded/record", "", READ),
    Rule("ams/storage/files", "", READ),
    Rule(_LOG, "", HAND_OVER),
    Rule("ams/service/", "", CASE),
    Rule("ams/http/lane", "LaneProtocol", PARSE),
    Rule("ams/http/protocol", "", PARSE),
    Rule("uvicorn/", "", PARSE),
    Rule("ams/http/", "", ROUTE),
)
"""The first that fits is taken."""
ORDER = (PARSE, ROUTE, RIGHTS, BODY, DECODE, CASE, HAND_OVER, SHOW, CURSOR, READ, COUNT, ANSWER, SEND, OTHER)
"""As a request comes by them."""
assert {each.step for each in RULES} | {OTHER} == set(ORDER)


def step_of(frames: Sequence[str]) -> str:
    """Return the step of a stack, given by `FUNCTION FILE`, outermost first: that of the innermost with a rule."""
    for frame in reversed(frames):
        for rule in RULES:
            name, _, file = frame.rpartition(" ")
            if file.startswith(rule.file) and name.startswith(rule.function):
                return rule.step
    return OTHER


def in_order(steps: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the steps that took something in their order."""
    return [(each, steps[each]) for each in ORDER if steps.get(each)]
