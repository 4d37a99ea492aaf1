"""REST: Google's API over HTTP/1.1 and JSON, with the methods of gRPC.

A request is converted to the message of its method, and the answer to JSON (`ams.pubsub.transcoding`). In between it is
a normal call (`Calls.answer`), with the same login, fair shares, rates, audit and use case.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple
from urllib.parse import parse_qs

import msgspec
from google.api_core.exceptions import exception_class_for_grpc_status
from google.protobuf import json_format
from google.rpc import status_pb2

from ams.core.errors import InvalidInput, NotAllowed, Overloaded, TooLarge, UnknownCoding
from ams.core.telemetry import REQUEST, SCOPE
from ams.http import errors as http_errors
from ams.http.app import REQUEST_ID, good_id
from ams.http.asgi import JSON, Receive, Send, answer
from ams.http.limits import Bodies, ClientLeft, watch_disconnect
from ams.outgoing.address_guard import Network
from ams.pubsub.bindings import ROUTES, WHOLE, RouteBinding, describe, field_in, shape_of
from ams.pubsub.calls import Calls, Rpc
from ams.pubsub.errors import DETAILS, CallRefusal, EndedElsewhere, current_task, refusal
from ams.pubsub.protos import Message
from ams.pubsub.requests import MOST_REQUEST, Scope, note_address, read, usual_headers
from ams.pubsub.transcoding import BadPayload, fill, read_json, read_query, show
from ams.web.answers import Header

_TEXT: Header = (b"content-type", b"text/plain; charset=utf-8")
_PREFIX = "/v1/"
DISCOVERY = ("/$discovery/rest", "/discovery/v1/apis/pubsub/v1/rest")  # paths of the discovery document
_STREAM = "projects/*/subscriptions/*:streamingPull"
_SYSTEM = frozenset(
    {"$.xgafv", "$alt", "$prettyPrint", "alt", "fields", "key", "prettyPrint", "quotaUser", "uploadType",
     "upload_protocol"}
)  # fmt: skip
"""Query parameters of all requests. `key` is a token; all others but `alt` are ignored."""
_FORMS = {"json": False, "json;enum-encoding=int": True}  # values of `alt`: whether enums are numbers
_HAS_LEFT = "ams.client_left"  # member of a scope: the client has disconnected
_BAD_REQUEST = "type.googleapis.com/google.rpc.BadRequest"


class RestAnswer(NamedTuple):
    """An answer as it goes out."""

    code: int
    body: bytes
    headers: Sequence[Header] = ()
    media: Header = JSON


@dataclass(eq=False)
class Rest:
    """ASGI application."""

    _calls: Calls
    _services: Mapping[str, Sequence[Rpc]]
    _bodies: Bodies
    _new_id: Callable[[], bytes]
    _: KW_ONLY
    proxies: Sequence[Network] = ()
    is_open: bool = False  # no tokens and no TLS (emulator); otherwise TLS ends here or at a proxy

    def __post_init__(self) -> None:
        self._rpcs = {rpc.binding.rpc: (service, rpc) for service, rpcs in self._services.items() for rpc in rpcs}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        given = next((good_id(value) for name, value in scope["headers"] if name == REQUEST_ID), b"")
        request_id = given or self._new_id()
        REQUEST.set(request_id)
        SCOPE.set(scope)
        scope["headers"] = usual_headers(scope["headers"])
        scope["client"] = scope["client"] or ("", 0)
        note_address(scope, self.proxies)
        with contextlib.ExitStack() as held:  # until the answer is sent
            try:
                found = await self._answer(scope, receive, held)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, ClientLeft) or _HAS_LEFT in scope:
                    self._calls.count("CANCELLED")
                    return
                if isinstance(error, asyncio.CancelledError):  # the only cause while the client is connected
                    error = Overloaded("The service is stopping")
                found = await self._refusal(error, scope)
            await answer(send, found.code, found.body, [found.media, *found.headers, (REQUEST_ID, request_id)])

    async def _answer(self, scope: Scope, receive: Receive, held: contextlib.ExitStack) -> RestAnswer:
        path, http = scope["path"], scope["method"]
        if self.is_open and any(name == b"origin" for name, _ in scope["headers"]):
            raise NotAllowed("Pages of browsers are not let in where nobody needs a token")
        if path in DISCOVERY and http == "GET":
            return self._description(scope)
        if path == "/" and http == "GET":  # health check of the emulator
            return RestAnswer(200, b"Ok\n", media=_TEXT)
        shape = shape_of(path.removeprefix(_PREFIX)) if path.startswith(_PREFIX) else ""
        bindings = ROUTES.get(shape)
        if bindings is None:
            if shape == _STREAM:
                return _error(501, "UNIMPLEMENTED", "StreamingPull is there over gRPC only: use :pull.")
            return _error(404, "NOT_FOUND", "Method not found.")
        binding = bindings.get(http)
        if binding is None:
            allowed = ", ".join(bindings)
            text = f"The HTTP method {http} is not there for this path, only {allowed}."
            return _error(405, "UNIMPLEMENTED", text, headers=[(b"allow", allowed.encode())])
        return await self._call(binding, scope, receive, held)

    async def _call(
        self, binding: RouteBinding, scope: Scope, receive: Receive, held: contextlib.ExitStack
    ) -> RestAnswer:
        service, rpc = self._rpcs[binding.rpc]
        in_numbers = False

        async def take(user: str) -> Message:
            nonlocal in_numbers
            holders = (user,)  # not the project: the user may be no member of it
            body = await self._read_body(scope, receive, holders) if binding.body else b""
            if binding.rpc == "Pull":  # it may wait; other methods are completed even if the client has left
                held.enter_context(_cancelled_when_left(receive, scope))
            in_numbers = _shows_numbers(scope["query_string"])
            with self._bodies.hold_body(len(body), holders):
                return _request(binding, scope, body, self._calls.most_payload)

        def to_json(found: bytes) -> bytes:
            return msgspec.json.encode(show(binding.answer.FromString(found), in_numbers))

        method = f"/{service}/{binding.rpc}"
        body = await self._calls.answer(rpc, method, scope, held, take, to_json)
        self._calls.count("OK")
        return RestAnswer(200, body)

    async def _read_body(self, scope: Scope, receive: Receive, holders: Sequence[str]) -> bytes:
        try:
            return await self._bodies.read(scope["headers"], receive, MOST_REQUEST, holders)
        except UnknownCoding as error:
            raise InvalidInput(error.message) from None
        except TooLarge:
            most = min(MOST_REQUEST, self._bodies.most)
            raise TooLarge(f"Request payload size exceeds the limit: {most} bytes.") from None

    async def _refusal(self, error: Exception, scope: Scope) -> RestAnswer:
        if isinstance(error, EndedElsewhere):
            found = _envelope(error.refused)
        else:
            found = refusal_of(error, await self._calls.log_refusal(error, scope))
        self._calls.count(msgspec.json.decode(found.body)["error"]["status"])
        return found

    def _description(self, scope: Scope) -> RestAnswer:
        if parse_qs(scope["query_string"].decode("latin-1")).get("version", ["v1"]) != ["v1"]:
            return _error(404, "NOT_FOUND", "Only the version v1 is there.")
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        return RestAnswer(200, msgspec.json.encode(describe(f"{'http' if self.is_open else 'https'}://{host}/")))


@contextlib.contextmanager
def _cancelled_when_left(receive: Receive, scope: Scope) -> Iterator[None]:
    """Cancel the current task when its client leaves, and mark the scope."""
    task, left = current_task(), watch_disconnect(receive)

    def leave(_: object) -> None:
        scope[_HAS_LEFT] = True
        task.cancel()

    left.add_done_callback(leave)
    try:
        yield
    finally:
        left.remove_done_callback(leave)
        left.cancel()


def _request(binding: RouteBinding, scope: Scope, body: bytes, most: int) -> Message:
    """Return the request of a method, with the limits of gRPC. Raises `BadPayload`, and as `read`."""
    request = binding.request()
    if binding.body:
        fill(request if binding.body == WHOLE else getattr(request, binding.body), read_json(body))
    fill(request, read_query(request.DESCRIPTOR, scope["query_string"].decode("latin-1"), _SYSTEM))
    *outer, last = binding.field.split(".")
    inner = request
    for name in outer:
        inner = getattr(inner, name)
    setattr(inner, last, field_in(binding, scope["path"].removeprefix(_PREFIX)))
    return read(binding.request, request.SerializeToString(), most)


def _shows_numbers(query: bytes) -> bool:
    """Return whether to encode enums as numbers. Raises `BadPayload` for another format than JSON."""
    said = parse_qs(query.decode("latin-1"))
    found = (said.get("$alt") or said.get("alt") or ["json"])[-1]
    if found not in _FORMS:
        raise BadPayload("Answers are JSON only (argument=alt).")
    return _FORMS[found]


def refusal_of(error: Exception, refused: CallRefusal | None = None) -> RestAnswer:
    """Return the answer for an error; `refused` is the refusal of its call."""
    refused = refused or refusal(error)
    details = [{"@type": _BAD_REQUEST, "fieldViolations": [error.violation]}] if isinstance(error, BadPayload) else []
    return _envelope(refused, details, http_errors.refusal(error).headers)


def _envelope(refused: CallRefusal, details: Sequence[object] = (), headers: Sequence[Header] = ()) -> RestAnswer:
    said = next((value for name, value in refused.metadata if name == DETAILS), b"")
    found = json_format.MessageToDict(status_pb2.Status.FromString(said)).get("details", [])
    status = exception_class_for_grpc_status(refused.code).code or 500  # type: ignore[no-untyped-call]
    return _error(status, refused.code.name, refused.text, details=[*details, *found], headers=headers)


def _error(
    status: int, word: str, text: str, *, details: Sequence[object] = (), headers: Sequence[Header] = ()
) -> RestAnswer:
    error = {"code": status, "message": text, "status": word, **({"details": details} if details else {})}
    return RestAnswer(status, msgspec.json.encode({"error": error}), headers)
