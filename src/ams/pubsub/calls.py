"""Life cycle of a call: login, admission, limits, answer, errors and audit."""

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from functools import partial
from typing import Any, NamedTuple, NoReturn

import grpc
import structlog

from ams.access.admission import Caller
from ams.access.permissions import SERVICE_ADMIN
from ams.core.errors import AlreadyExists, AmsError, NotAuthenticated, NotFound, OwnedElsewhere
from ams.core.fair_share import FairShare
from ams.core.names import ProjectName, UserName
from ams.core.telemetry import REQUEST, SCOPE
from ams.http.asgi import project_of, usual_address
from ams.http.audit import AuditedRequest, Auditor
from ams.http.hot_routes import RequestGate
from ams.http.limits import Bodies, ClientLeft
from ams.outgoing.address_guard import Network
from ams.pubsub.bindings import BY_RPC, RouteBinding
from ams.pubsub.errors import CallRefusal, EndedElsewhere, Missing, current_task, end, forget, refusal
from ams.pubsub.fields import SCHEMAS, SNAPSHOTS, SUBSCRIPTIONS, TOPICS, PubsubName
from ams.pubsub.forwarding import Relays
from ams.pubsub.protos import Message
from ams.pubsub.requests import MOST_PAYLOAD, Context, Headers, Scope, first_of, read, scope_of
from ams.service.delivery import UnreadAnswers
from ams.service.projects import Projects
from ams.storage.registry.registry import Registry
from ams.web.listener import is_within

TOO_MANY_LOGINS = "Too many calls of this address wait to be let in"
TOO_MANY_CALLS, TOO_MANY_STREAMS = "Too many calls of this user at a time", "Too many streams of this user at a time"
PLAIN = "Connections without TLS are only taken from the proxies that the setting trusted_proxies names"
_VARIABLES = {TOPICS: "topic", SUBSCRIPTIONS: "subscription", SNAPSHOTS: "snapshot", SCHEMAS: "schema"}
ANYBODY = UserName("(emulator)")  # stands for callers of the emulator's port, who have no token
_CAPITALS = re.compile("(?<!^)[A-Z]")
_NOBODY = Caller(None, None, frozenset(), False, None)

logger = structlog.get_logger("ams.pubsub")


class PubsubCall(NamedTuple):
    """An admitted call."""

    caller: Caller
    name: PubsubName  # of its resource
    scope: Scope
    action: str
    may: Callable[[str], Awaitable[Caller]]  # checks the rights for an action on it, without counting a request

    @property
    def project(self) -> ProjectName:
        """The project that the call names."""
        return self.caller.here.name

    async def again(self) -> Caller:
        """Check the rights again, after a wait."""
        return await self.may(self.action)


class Rpc(NamedTuple):
    """A method with one request and one answer."""

    binding: RouteBinding
    act: Callable[[PubsubCall, Any], Awaitable[Message]]


def bind_rpcs(methods: object) -> list[Rpc]:
    """Return the methods of a service: of `CreateTopic`, the method `create_topic` of `methods`."""
    names = {_CAPITALS.sub(r"_\g<0>", rpc).lower(): binding for rpc, binding in BY_RPC.items()}
    return [Rpc(binding, getattr(methods, name)) for name, binding in names.items() if hasattr(methods, name)]


class EmulatorDoor(RequestGate):
    """The gate of the emulator: each client on this machine is an administrator; first use makes a project."""

    def __init__(self, registry: Registry, projects: Projects) -> None:
        self._registry, self._projects = registry, projects

    def cached_caller(self, headers: Headers, query: bytes) -> str | None:
        """Return the id of the caller, who is no user."""
        return ""

    async def admit(
        self, action: str, names: Mapping[str, str], headers: Headers, query: bytes, *, counted: bool = False
    ) -> Caller:
        """Let a caller in."""
        name, nobody = ProjectName(names["project"]), Caller(None, ANYBODY, frozenset({SERVICE_ADMIN}), True, None)
        found = await self._registry.projects.find(name)
        if found is None:
            with contextlib.suppress(AlreadyExists):  # two calls may name it first
                await self._projects.create(nobody, name)
            found = await self._registry.projects.find(name)
        return replace(nobody, project=found)

    async def know(self, headers: Headers, query: bytes) -> None:
        """Do nothing: every client on this machine is admitted."""


@dataclass(eq=False)
class Calls:
    """Answers calls.

    The caller is authenticated before any request is read. Until then a call counts for its address, afterwards for its
    user; each has a fair share.
    """

    _door: RequestGate
    _auditor: Auditor
    _bodies: Bodies
    _new_id: Callable[[], bytes]
    _ended: Counter[str]  # calls by code
    _unread: UnreadAnswers
    _: KW_ONLY
    most: InitVar[int]  # concurrent logins, calls, and streams each
    seconds: float  # for a request to arrive
    most_payload: int = MOST_PAYLOAD  # bytes of a request
    proxies: Sequence[Network] = ()
    only_proxies: bool = False  # refuse clients that do not come through `proxies`
    relay: Relays | None = None

    def __post_init__(self, most: int) -> None:
        most = max(most, 2)
        self._logins, self._calls, self._streams = FairShare[str](most), FairShare[str](most), FairShare[str](most)

    async def admit(self, scope: Scope, action: str, name: PubsubName) -> PubsubCall:
        """Admit a call. Raises as `Admission.admit`, and `RateLimited`."""
        variable = {_VARIABLES[name.kind]: name.leaf} if name.kind else {}
        names = {"project": name.project, **variable}

        async def may(action: str, *, counted: bool = True) -> Caller:
            try:
                return await self._door.admit(action, names, scope["headers"], scope["query_string"], counted=counted)
            except NotFound as error:  # only the project is looked up here
                raise Missing(name.project, error.message) from error

        if action:
            caller = await may(action, counted=False)
        else:
            await self._door.know(scope["headers"], scope["query_string"])
            caller = _NOBODY
        return PubsubCall(caller, name, scope, action, may)

    def unary(self, service: str, rpc: Rpc) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return the handler of a method with one request and one answer.

        For gRPC it is a stream of requests: gRPC would read a unary request before the login.
        """
        method = f"/{service}/{rpc.binding.rpc}"

        async def answer(_: Any, context: Context) -> bytes:
            async def take(_: str) -> Message:
                return read(rpc.binding.request, await first_of(context, self.seconds), self.most_payload)

            scope = self._begin(context, method)
            try:
                held = contextlib.ExitStack()  # until the answer is sent: an unread answer uses up the user's share
                current_task().add_done_callback(lambda _: held.close())
                return await self.answer(rpc, method, scope, held, take, left=context.time_remaining)
            except Exception as error:
                return await self._fail(context, error, scope)

        return grpc.stream_unary_rpc_method_handler(answer)

    async def answer(
        self,
        rpc: Rpc,
        method: str,
        scope: Scope,
        held: contextlib.ExitStack,
        take: Callable[[str], Awaitable[Message]],
        shown: Callable[[bytes], bytes] = bytes,
        left: Callable[[], float | None] = lambda: None,
    ) -> bytes:
        """Return the answer of a call, encoded by `shown`.

        `take` reads the request of a user id, empty for none. `held` is closed when the answer was sent. `left`
        returns the seconds until the client's deadline, if it has one.
        """
        user = await self._login(scope)
        held.enter_context(self._calls.hold_slot(user, TOO_MANY_CALLS))
        found = shown(await self._answer(rpc, method, await take(user), scope, left))
        project = project_of(scope)
        if rpc.binding.only_reads:  # a refusal here would make clients repeat a change
            self._unread.check(project, len(found))
        held.enter_context(self._unread.hold_answer(project, len(found)))
        return found

    def stream(
        self, method: str, act: Callable[[Context, Scope], Awaitable[None]]
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return the handler of a bidirectional stream; `act` admits callers and reads requests."""

        def serialize(answer: Message) -> Any:  # another node's answer is bytes
            return answer if isinstance(answer, bytes) else answer.SerializeToString()

        async def answer(_: Any, context: Context) -> None:
            scope = self._begin(context, method)
            try:
                with self._streams.hold_slot(await self._login(scope), TOO_MANY_STREAMS):
                    await act(context, scope)
            except ClientLeft:
                context.set_code(grpc.StatusCode.CANCELLED)
            except Exception as error:
                await self._fail(context, error, scope, on_stream=True)

        return grpc.stream_stream_rpc_method_handler(answer, None, serialize)

    async def _login(self, scope: Scope) -> str:
        """Authenticate the caller; return its id. Raises as `RequestGate.who`, `Overloaded` with too many logins."""
        if self.only_proxies and not is_within(usual_address(scope["client"][0]), self.proxies):
            raise NotAuthenticated(PLAIN)
        known = self._door.cached_caller(scope["headers"], scope["query_string"])
        if known is not None:
            return known
        with self._logins.hold_slot(scope["address"], TOO_MANY_LOGINS):
            return await self._door.who(scope["headers"], scope["query_string"])

    async def _answer(
        self, rpc: Rpc, method: str, request: Message, scope: Scope, left: Callable[[], float | None]
    ) -> bytes:
        binding = rpc.binding
        action = binding.action if isinstance(binding.action, str) else binding.action(request)
        audited = AuditedRequest("POST" if binding.is_change else "GET", action, scope)
        try:
            async with self._auditor.recording(audited):
                name = binding.about(request)
                scope["path"], scope["leaf"] = f"/v1/{name.path}", name.leaf
                call = await self.admit(scope, action, name)
                audited.caller = call.caller
                size, holders = request.ByteSize(), (name.project, call.caller.user)
                with self._bodies.count_request(size, holders):
                    is_late = await self._bodies.wait_turn(size, holders)
                    if is_late and action:
                        call = call._replace(caller=await call.again())
                    answer: bytes = (await rpc.act(call, request)).SerializeToString()
                return answer
        except OwnedElsewhere as elsewhere:
            if self.relay is None:
                raise
            return await self.relay.unary(elsewhere, method, request.SerializeToString(), scope, left())

    def _begin(self, context: Context, method: str) -> Scope:
        """Record headers and address of a call, for logs, rates and audit."""
        REQUEST.set(self._new_id())
        current_task().add_done_callback(partial(self._note_end, context))  # gRPC's own callback makes a cycle
        scope = scope_of(context, method, self.proxies)
        SCOPE.set(scope)
        return scope

    def _note_end(self, context: Context, task: "asyncio.Task[Any]") -> None:
        code: Any = context.code()
        # The library cancels the task of a client that left; a stream may have read the end just before.
        has_left = task.cancelling() or context.cancelled()
        self.count("CANCELLED" if has_left else code.name if code else "OK")

    def count(self, code: str) -> None:
        """Count a call that ended with a code of gRPC."""
        self._ended[code] += 1

    async def _fail(self, context: Context, error: Exception, scope: Scope, *, on_stream: bool = False) -> NoReturn:
        if isinstance(error, grpc.aio.AbortError):  # the call is ended already
            raise error
        if isinstance(error, EndedElsewhere):
            await end(context, error.refused)
        await end(context, await self.log_refusal(error, scope, on_stream=on_stream))

    async def log_refusal(self, error: Exception, scope: Scope, *, on_stream: bool = False) -> CallRefusal:
        """Log an error; return the refusal that ends the call."""
        error = await self._auditor.turned_away(error, scope)
        if not isinstance(error, AmsError):
            logger.exception("call.failed")
        refused = refusal(error, scope.get("leaf", ""), on_stream=on_stream)
        forget(error)
        return refused
