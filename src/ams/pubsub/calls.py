"""One call of a method: who asks, whether they may, what an error is answered with, and what the audit log gets."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias
from urllib.parse import unquote

import grpc
import structlog
from google.protobuf.message import DecodeError

from ams.access.admission import Caller
from ams.access.permissions import SERVICE_ADMIN
from ams.core.errors import (
    AlreadyExists,
    AmsError,
    InvalidInput,
    NotAuthenticated,
    NotFound,
    OwnedElsewhere,
    TooLarge,
)
from ams.core.names import ProjectName
from ams.core.observing import REQUEST, SCOPE
from ams.http.asgi import is_within
from ams.http.auditing import Auditor, log_change
from ams.http.fast import Gate
from ams.http.limits import Bodies, ClientLeft
from ams.outgoing.guard import Network
from ams.pubsub.errors import Missing, Refusal, refusal
from ams.pubsub.names import SCHEMAS, SNAPSHOTS, SUBSCRIPTIONS, TOPICS, Name
from ams.pubsub.protos import Message
from ams.service.projects import Projects
from ams.storage.registry.registry import Registry

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Scope = MutableMapping[str, Any]
"""What a call says of itself, as an HTTP request would: for rates, logs and the audit log."""
Headers = list[tuple[bytes, bytes]]

MOST_PAYLOAD = 10 * 2**20
"""Bytes of a request."""
PLAIN = "Connections without TLS are only taken from the proxies that the setting trusted_proxies names"
_VARIABLES = {TOPICS: "topic", SUBSCRIPTIONS: "subscription", SNAPSHOTS: "snapshot", SCHEMAS: "schema"}
_API_KEY, _USUAL_KEY, _REQUEST_ID = b"x-goog-api-key", b"x-api-key", b"x-request-id"

_NOBODY = Caller(None, None, frozenset(), False, None)

logger = structlog.get_logger("ams.pubsub")


class Call(NamedTuple):
    """One call, let in."""

    caller: Caller
    name: Name
    """What it is about."""
    context: Context
    action: str
    may: Callable[[str], Awaitable[Caller]]
    """Looks whether who calls may do an action on it, and does not count that; raises as the door does."""

    @property
    def project(self) -> ProjectName:
        """The project that the call names."""
        return self.caller.here.name

    async def again(self) -> Caller:
        """Look at the rights once more, after a while."""
        return await self.may(self.action)


class Rpc(NamedTuple):
    """A method with one request and one answer."""

    name: str
    request: Any
    action: str | Callable[[Message], str]
    """What the caller must be allowed (`ams.access.permissions`); empty: the method looks by itself."""
    about: Callable[[Message], Name]
    """Reads which resource a request is about; raises `InvalidInput`."""
    act: Callable[[Call, Any], Awaitable[Message]]
    is_change: bool = False
    """Whether the audit log gets it."""


class StreamRpc(NamedTuple):
    """A method with a stream of requests and one of answers.

    It lets callers in by itself (`Calls.admit`), and reads requests (`read`), which come as they were sent.
    """

    name: str
    act: Callable[[Context, Scope], Awaitable[None]]


class Door(Protocol):
    """Lets callers in."""

    async def __call__(self, action: str, names: Mapping[str, str], headers: Headers, *, counted: bool) -> Caller:
        """Return who calls; raise as `Admission.admit`, and `RateLimited`. A `counted` call does not count again."""
        ...

    async def know(self, headers: Headers) -> None:
        """Count a call of somebody, whatever their rights; raise `NotAuthenticated` for nobody, and `RateLimited`."""
        ...


class TokenDoor:
    """Lets in whose token allows it: a bearer token, or an API key, which is a token of AMS."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def __call__(self, action: str, names: Mapping[str, str], headers: Headers, *, counted: bool) -> Caller:
        """Let a caller in."""
        try:
            return await self._gate.admit(action, names, headers, b"", counted=counted)
        except NotFound as error:  # nothing else is looked for yet
            raise Missing(names["project"], error.message) from error

    async def know(self, headers: Headers) -> None:
        """Count a call of somebody."""
        await self._gate.know(headers, b"")


class EmulatorDoor:
    """Lets everybody on this machine in, as an administrator, and makes projects when they are first named."""

    def __init__(self, registry: Registry, projects: Projects) -> None:
        self._registry = registry
        self._projects = projects

    async def __call__(self, action: str, names: Mapping[str, str], headers: Headers, *, counted: bool) -> Caller:
        """Let a caller in."""
        name, roles = ProjectName(names["project"]), frozenset({SERVICE_ADMIN})
        nobody = Caller(None, None, roles, True, None)
        found = await self._registry.projects.find(name)
        if found is None:
            with contextlib.suppress(AlreadyExists):  # two calls may name it first
                await self._projects.create(nobody, name)
            found = await self._registry.projects.find(name)
        return Caller(None, None, roles, True, found)

    async def know(self, headers: Headers) -> None:
        """Do nothing: everybody on this machine is known."""


class Relay(Protocol):
    """Has a call answered by the node that owns what it is about."""

    async def unary(self, elsewhere: OwnedElsewhere, method: str, request: bytes, context: Context) -> bytes:
        """Return the owner's answer; end the call as the owner ended it."""
        ...

    async def stream(self, elsewhere: OwnedElsewhere, method: str, first: Message, context: Context) -> None:
        """Pass requests on to the owner, and its answers back, until one of both sides ends it."""
        ...


class Calls:
    """Answers calls."""

    def __init__(
        self,
        door: Door,
        auditor: Auditor,
        bodies: Bodies,
        new_id: Callable[[], bytes],
        ended: Counter[str],
        *,
        plain_from: Sequence[Network] | None = None,
        relay: Relay | None = None,
    ) -> None:
        """`ended` counts calls by their codes. `plain_from`: only these networks are answered; None: all are."""
        self._door = door
        self._auditor = auditor
        self._bodies = bodies
        self._new_id = new_id
        self._ended = ended
        self._plain_from = plain_from
        self._relay = relay

    async def admit(self, context: Context, scope: Scope, action: str, name: Name) -> Call:
        """Let a call in; raises as the door does."""
        self._check_network(scope)
        variable = {_VARIABLES[name.kind]: name.leaf} if name.kind else {}
        names = {"project": name.project, **variable}

        async def may(other: str) -> Caller:
            return await self._door(other, names, scope["headers"], counted=True)

        if action:
            caller = await self._door(action, names, scope["headers"], counted=False)
        else:
            await self._door.know(scope["headers"])
            caller = _NOBODY
        return Call(caller, name, context, action, may)

    def unary(self, service: str, rpc: Rpc) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return the handler of a method with one request and one answer."""
        method = f"/{service}/{rpc.name}"

        async def answer(said: bytes, context: Context) -> Message:
            scope = self._begin(context)
            try:
                return await self._answer(rpc, method, read(rpc.request, said), context, scope)
            except Exception as error:
                return await self._fail(context, error, scope.get("leaf", ""))

        return grpc.unary_unary_rpc_method_handler(answer, None, _serialized)

    def stream(self, rpc: StreamRpc) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return the handler of a method with two streams."""

        async def answer(_: Any, context: Context) -> None:
            scope = self._begin(context)
            try:
                await rpc.act(context, scope)
            except ClientLeft:
                context.set_code(grpc.StatusCode.CANCELLED)
            except Exception as error:
                error = await self._auditor.turned_away(error, scope)
                await self._fail(context, error, scope.get("leaf", ""), on_stream=True)

        return grpc.stream_stream_rpc_method_handler(answer, None, _serialized)

    async def _answer(self, rpc: Rpc, method: str, request: Message, context: Context, scope: Scope) -> Message:
        action, caller = rpc.action if isinstance(rpc.action, str) else rpc.action(request), None
        http_method = "POST" if rpc.is_change else "GET"
        try:
            name = rpc.about(request)
            scope["path"], scope["leaf"] = f"/v1/{name.path}", name.leaf
            call = await self.admit(context, scope, action, name)
            caller = call.caller
            with self._bodies.counted(request.ByteSize(), (name.project, caller.user)):
                answer = await rpc.act(call, request)
        except OwnedElsewhere as elsewhere:
            if self._relay is None:
                raise
            return await self._relay.unary(elsewhere, method, request.SerializeToString(), context)
        except asyncio.CancelledError:
            await self._auditor.cut_short(http_method, action, caller, scope)
            raise
        except Exception as error:
            await self._auditor.refused(http_method, action, caller, scope, error)
            raise await self._auditor.turned_away(error, scope) from error
        await self._auditor.changed(http_method, action, caller, scope)
        await log_change(http_method, action, caller, scope["path"])
        return answer

    def _begin(self, context: Context) -> Scope:
        """Note what the call says of itself as an HTTP request would, for logs, rates and the audit log."""
        REQUEST.set(self._new_id())
        note_end: Any = partial(self._note_end, asyncio.current_task())
        context.add_done_callback(note_end)
        scope: dict[str, Any] = {
            "path": "/v1/",
            "headers": list(_headers(context)),
            "query_string": b"",
            "client": client_of(context),
        }
        SCOPE.set(scope)
        return scope

    def _note_end(self, task: "asyncio.Task[Any] | None", context: Context) -> None:
        code: Any = context.code()
        has_left = task is not None and task.cancelling()  # the library ends the work for a client that left
        self._ended["CANCELLED" if has_left else code.name if code else "OK"] += 1

    def _check_network(self, scope: Scope) -> None:
        if self._plain_from is not None and not is_within(scope["client"][0], self._plain_from):
            raise NotAuthenticated(PLAIN)

    async def _fail(self, context: Context, error: Exception, leaf: str, *, on_stream: bool = False) -> NoReturn:
        if isinstance(error, grpc.aio.AbortError):  # the call is ended already
            raise error
        if not isinstance(error, AmsError):
            logger.exception("call.failed")
        await end(context, refusal(error, leaf, on_stream=on_stream))


def read(kind: Any, said: bytes) -> Message:
    """Read a request; raise `InvalidInput` for what is none, so that no client sends it again, `TooLarge`."""
    if len(said) > MOST_PAYLOAD:
        raise TooLarge(f"Request payload size exceeds the limit: {MOST_PAYLOAD} bytes.")
    try:
        return kind.FromString(said)
    except DecodeError:
        raise InvalidInput("The request is no valid message of its type.") from None


async def end(context: Context, refused: Refusal) -> NoReturn:
    """End a call with an error."""
    await context.abort(refused.code, refused.text, refused.metadata)
    raise AssertionError("a call that was aborted is over")


def _serialized(answer: Message) -> bytes:
    found: bytes = answer if isinstance(answer, bytes) else answer.SerializeToString()
    return found


def _headers(context: Context) -> Iterator[tuple[bytes, bytes]]:
    """Yield the metadata of a call as header fields; an API key under the name that the HTTP API reads."""
    for name, value in context.invocation_metadata() or ():
        key = name.encode()
        yield (_USUAL_KEY if key == _API_KEY else key), value if isinstance(value, bytes) else value.encode()


def client_of(context: Context) -> tuple[str, int]:
    """Return address and port of who calls; an empty address when it is not known."""
    kind, _, rest = unquote(context.peer()).partition(":")
    address, _, port = rest.rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdigit():
        return "", 0
    return address.strip("[]"), int(port)
