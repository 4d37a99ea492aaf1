"""The gRPC server of a push server: its port and certificate, who may ask, and its methods (push contract 3 to 5).

Every call is checked: its client by the access list of certificates (P22), and the server's condition.
The methods answer with the codes and texts of push contract 3; health is the standard service of gRPC.
"""

import contextlib
import functools
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any

import grpc
import structlog
from cryptography import x509
from cryptography.x509.oid import NameOID
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from ams.app.push_server.following import Condition, Follower
from ams.app.push_server.settings import PushSettings
from ams.app.push_server.targets import Invalid, of_message
from ams.core.distinguished_names import normalised, of_certificate
from ams.core.errors import BadSettings, Unusable
from ams.push.report import text
from ams.push.rpc import push_service_pb2 as pb
from ams.push.rpc.wire import (
    ACTIVATE,
    CHECK,
    DEACTIVATE,
    HEALTH,
    SERVICE,
    STATUS,
    SUBSCRIPTION_STATUS,
    WATCH,
    Method,
    authorities,
    read_file,
)
from ams.wire.push import WorkerState

UNAUTHORISED = "UNAUTHORISED"
UNREADABLE = "The request cannot be read"
UNABLE = "The push service is currently unable to handle any requests"
_WHATEVER_THE_CONDITION = frozenset({STATUS.path, WATCH.path})  # they say how the server is, and why
logger = structlog.get_logger("ams.push_server")
Context = grpc.aio.ServicerContext[Any, Any]
STOP_SECONDS = 1.0  # for calls under way, at a stop
MAX_CONNECTIONS = 256  # one more is closed as it comes: services that drive this server are few
HANDSHAKE_SECONDS = 10
MIN_PING_SECONDS = 5
"""Between two pings of a connection, as at the port of Google's clients: the libraries of gRPC let their users set
10 s, and grpcio sends clients away that ping more often than every five minutes."""
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a port that another process has is an error, not shared
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_SECONDS * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
)


class AccessList:
    """Names of clients. One with `=` in it is a whole distinguished name; any other is a common name."""

    def __init__(self, entries: Iterable[str]) -> None:
        given = [entry.strip() for entry in entries if entry.strip()]
        self._names = frozenset(entry for entry in given if "=" not in entry)
        self._distinguished = frozenset(_normalised(entry) for entry in given if "=" in entry)
        self._permits = functools.lru_cache(maxsize=256)(self._judged)

    def permits(self, identity: Mapping[str, Iterable[bytes]] | None) -> bool:
        """Return whether a client may ask; `identity` is what the transport knows of the client."""
        pems = list((identity or {}).get("x509_pem_cert", ()))
        return bool(pems) and self._permits(pems[0])

    def _judged(self, pem: bytes) -> bool:
        try:
            subject = x509.load_pem_x509_certificate(pem).subject
        except ValueError:
            return False
        common = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        # Of several common names the last one counts, as in the normal form.
        return bool(common and common[-1].value in self._names) or of_certificate(subject) in self._distinguished


def _normalised(entry: str) -> str:
    try:
        return normalised(entry)
    except ValueError as error:
        raise BadSettings(f"acl: {entry!r}: {error}") from None


class Gate:
    """Puts checks before methods, streaming ones too (P22); `access` is None without TLS: clients have no identity."""

    def __init__(self, access: AccessList | None, condition: Condition) -> None:
        self._access, self._condition = access, condition

    def handlers(self, service: str, answers: "Mapping[Method[Any, Any], Callable[..., Any]]") -> Any:
        """Return the methods of a service for a server. Requests are read behind the checks."""
        methods = {}
        for method, answer in answers.items():
            is_stream = inspect.isasyncgenfunction(answer)
            checked = self._stream(method, answer) if is_stream else self._single(method, answer)
            kind: Any = grpc.unary_stream_rpc_method_handler if is_stream else grpc.unary_unary_rpc_method_handler
            methods[method.name] = kind(checked, response_serializer=method.answer.SerializeToString)
        return grpc.method_handlers_generic_handler(service, methods)

    def _single(self, method: Method[Any, Any], answer: Callable[[Any, Context], Awaitable[Any]]) -> Any:
        async def checked(request: bytes, context: Context) -> Any:
            began = time.monotonic()
            try:
                return await answer(await self._admitted(method, request, context), context)
            finally:
                took = round((time.monotonic() - began) * 1000, 3)
                logger.debug("call", method=method.path, code=str(context.code()), milliseconds=took)

        return checked

    def _stream(self, method: Method[Any, Any], answer: Callable[[Any, Context], AsyncIterator[Any]]) -> Any:
        async def checked(request: bytes, context: Context) -> AsyncIterator[Any]:
            async for each in answer(await self._admitted(method, request, context), context):
                yield each

        return checked

    async def _admitted(self, method: Method[Any, Any], request: bytes, context: Context) -> Any:
        if self._access is not None and not self._access.permits(context.auth_context()):
            logger.warning("call.unauthorised", method=method.path, peer=context.peer())
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, UNAUTHORISED)
        if not self._condition.is_ok and method.path not in _WHATEVER_THE_CONDITION:
            await context.abort(grpc.StatusCode.INTERNAL, UNABLE)
        try:
            return method.request.FromString(request)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, UNREADABLE)


class Health:
    """Answers whether the server can work. Other services than the whole, `""`, are unknown."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition

    async def check(self, request: Any, context: Context) -> Any:
        """Answer how it is; while the server cannot work, no call comes so far."""
        if request.service:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return self._now()

    async def watch(self, request: Any, _context: Context) -> AsyncIterator[Any]:
        """Answer how it is, and again at every change."""
        while True:
            changed = self._condition.changed
            if request.service:
                yield health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
            else:
                yield self._now()
            await changed.wait()

    def _now(self) -> Any:
        kinds = health_pb2.HealthCheckResponse
        return kinds(status=kinds.SERVING if self._condition.is_ok else kinds.NOT_SERVING)


class PushService:
    """The methods; the gate has let their callers through."""

    def __init__(self, follower: Follower, condition: Condition) -> None:
        self._follower, self._condition = follower, condition

    async def activate(
        self, request: pb.ActivateSubscriptionRequest, context: Context
    ) -> pb.ActivateSubscriptionResponse:
        """Begin to deliver; no delivery is waited for or tried."""
        sent = request.subscription
        whole = request.HasField("subscription") and sent.HasField("push_config")
        if not whole or not sent.push_config.HasField("retry_policy"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Empty subscription")
        if self._follower.state(sent.full_name) is not None:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, f"Subscription {sent.full_name} is already activated")
        try:
            target = of_message(sent)
        except Invalid as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self._follower.activate(target)
        logger.info("subscription.activated", subscription=target.path)
        return pb.ActivateSubscriptionResponse(message=f"Subscription {target.path} activated")

    async def deactivate(
        self, request: pb.DeactivateSubscriptionRequest, context: Context
    ) -> pb.DeactivateSubscriptionResponse:
        """Deliver no more; what is under way is finished, and not waited for here (P8)."""
        await self._known(request.full_name, context)
        self._follower.deactivate(request.full_name)
        logger.info("subscription.deactivated", subscription=request.full_name)
        return pb.DeactivateSubscriptionResponse(message=f"Subscription {request.full_name} deactivated")

    async def subscription_status(
        self, request: pb.SubscriptionStatusRequest, context: Context
    ) -> pb.SubscriptionStatusResponse:
        """Answer how a delivery goes."""
        state = await self._known(request.full_name, context)
        return pb.SubscriptionStatusResponse(status=text(request.full_name, state))

    async def status(self, _request: pb.StatusRequest, context: Context) -> pb.StatusResponse:
        """Answer that the server can work; an error says why not."""
        if not self._condition.is_ok:
            # A full stop and no blank: the contract's words.
            await context.abort(grpc.StatusCode.INTERNAL, f"{UNABLE}.{self._condition.text}")
        return pb.StatusResponse()

    async def _known(self, path: str, context: Context) -> WorkerState:
        state = self._follower.state(path)
        if state is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Subscription {path} is not active")
        return state


@contextlib.asynccontextmanager
async def listening(settings: PushSettings, follower: Follower, condition: Condition) -> AsyncIterator[str]:
    """Answer calls until the block ends; gives host and port. Raises `BadSettings` and `Unusable` with one line."""
    access = AccessList(settings.acl) if settings.tls_enabled else None
    gate, service, health = Gate(access, condition), PushService(follower, condition), Health(condition)
    methods: dict[Method[Any, Any], Callable[..., Any]] = {
        ACTIVATE: service.activate,
        DEACTIVATE: service.deactivate,
        SUBSCRIPTION_STATUS: service.subscription_status,
        STATUS: service.status,
    }
    server = grpc.aio.server(options=(*_OPTIONS, ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS)))
    handlers = gate.handlers(SERVICE, methods), gate.handlers(HEALTH, {CHECK: health.check, WATCH: health.watch})
    server.add_generic_rpc_handlers(handlers)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    credentials = _credentials(settings)
    try:
        place = f"{host}:{settings.port}"
        port = server.add_secure_port(place, credentials) if credentials else server.add_insecure_port(place)
    except RuntimeError as error:
        raise Unusable(f"Could not listen: {host} port {settings.port} is in use, or no address of ours") from error
    await server.start()
    try:
        yield f"{host}:{port}"
    finally:
        await server.stop(STOP_SECONDS)


def _credentials(settings: PushSettings) -> grpc.ServerCredentials | None:
    """Return TLS of 1.2 at least with client certificates; the files are read again for each connection."""
    if not settings.tls_enabled:
        return None

    def read() -> tuple[bytes, bytes, bytes]:
        chain, key = read_file("cert", settings.cert), read_file("key", settings.key)
        return chain, key, authorities(settings.certificate_authorities_dir)

    known = read()

    def shown() -> grpc.ServerCertificateConfiguration:
        chain, key, roots = known
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=roots)

    def changed() -> Any:
        """Return what is new; None to go on with what there is, also where a file cannot be used."""
        nonlocal known
        try:
            before, known = known, read()
        except BadSettings as error:
            logger.error("certificate.unusable", reason=str(error))
            return None
        if known == before:
            return None
        logger.info("certificate.loaded", chain=settings.cert)
        return shown()

    return grpc.dynamic_ssl_server_credentials(shown(), changed, require_client_authentication=True)
