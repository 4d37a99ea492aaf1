"""What can be asked of a receiver, over the same ports: paths that begin with `/_`.

GET  /_received?path=/ok&after=N   the requests remembered, after the first N of them
GET  /_numbers                     how many requests and connections
GET  /_endpoints                   URLs of endpoints whose TLS is bad, by name, and of further ports (`more`)
POST /_hash                        what `/ams_verification_hash` shows; `?port` for this port only
POST /_forget                      forget all requests
"""

from collections.abc import Awaitable, Mapping
from itertools import islice
from urllib.parse import parse_qs

import msgspec

from tests.support.receiving.behaviours import behave
from tests.support.receiving.protocol import Behaviour, Conversation
from tests.support.receiving.requests import Memory, Received

Endpoints = Mapping[str, str | list[str]]


def asked(endpoints: Endpoints) -> Behaviour:
    """Return what answers questions, and behaves as paths say otherwise."""

    def ask(conversation: Conversation, request: Received) -> Awaitable[None] | None:
        if not request.target.startswith("/_"):
            return behave(conversation, request)
        found = _answer(conversation, request, endpoints)
        conversation.answer(200, msgspec.json.encode(found), "Content-Type: application/json")
        return None

    return ask


def _answer(conversation: Conversation, request: Received, endpoints: Endpoints) -> object:
    memory = conversation.memory
    match request.path:
        case "/_received":
            return _received(memory, request)
        case "/_numbers":
            return memory.numbers()
        case "/_endpoints":
            return endpoints
        case "/_hash":
            memory.hashes[conversation.port if request.target.endswith("?port") else 0] = request.body
        case "/_forget":
            memory.forget()
    return None


def _received(memory: Memory, request: Received) -> list[Received]:
    query = parse_qs(request.target.partition("?")[2])
    path, after = query.get("path", [""])[0], int(query.get("after", ["0"])[0])
    return list(islice((each for each in memory.requests if each.path.startswith(path)), after, None))
