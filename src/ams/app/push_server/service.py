"""The gRPC server of a push server: port, certificate, access list, and methods (push contract 3 to 5).

Every call is checked: its client certificate by the access list (P22), and the server's health. The methods answer with
the codes and texts of push contract 3; health checks are gRPC's standard service.
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
from grpc_health.v1.health_pb2 import HealthCheckResponse

from ams.app.push_server.selection import Condition, Follower
from ams.app.push_server.settings import PushSettings
from ams.app.push_server.targets import InvalidTarget, of_message
from ams.core.distinguished_names import normalise_name, of_certificate
from ams.core.errors import BadSettings, Unusable
from ams.push.report import text
from ams.push.rpc import push_service_pb2 as pb
from ams.push.rpc import wire
from ams.wire.push import WorkerState

UNHEALTHY_TEXT = "The push service is currently unable to handle any requests"
_HEALTH_METHODS = frozenset({wire.STATUS.path, wire.WATCH.path})  # they report the health
logger = structlog.get_logger("ams.push_server")
Context = grpc.aio.ServicerContext[Any, Any]
STOP_SECONDS = 1.0  # for calls in flight, at a stop
MAX_CONNECTIONS = 256  # one more is closed at once: few services drive this server
HANDSHAKE_SECONDS = 10
MIN_PING_SECONDS = 5
"""Between two pings of a connection, as on the port of Google's clients. The libraries of gRPC let users set 10 s, and
grpcio disconnects clients that ping more often than every five minutes."""
_OPTIONS = (
    ("grpc.so_reuseport", 0),  # a port that another process uses is an error, not shared
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
    ("grpc.http2.min_ping_interval_without_data_ms", MIN_PING_SECONDS * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
)


class AccessList:
    """Names of clients. An entry with `=` is a whole distinguished name; any other is a common name."""

    def __init__(self, entries: Iterable[str]) -> None:
        given = [entry.strip() for entry in entries if entry.strip()]
        self._names = frozenset(entry for entry in given if "=" not in entry)
        self._distinguished = frozenset(_normalise(entry) for entry in given if "=" in entry)
        self._permits = functools.lru_cache(maxsize=256)(self._is_listed)

    def permits(self, identity: Mapping[str, Iterable[bytes]] | None) -> bool:
        """Return whether a client may call; `identity` is the transport's knowledge of the client."""
        pems = list((identity or {}).get("x509_pem_cert", ()))
        return bool(pems) and self._permits(pems[0])

    def _is_listed(self, pem: bytes) -> bool:
        try:
            subject = x509.load_pem_x509_certificate(pem).subject
        except ValueError:
            return False
        common = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        # The last of several common names counts, as in the normal form.
        return bool(common and common[-1].value in self._names) or of_certificate(subject) in self._distinguished


def _normalise(entry: str) -> str:
    try:
        return normalise_name(entry)
    except ValueError as error:
        raise BadSettings(f"acl: {entry!r}: {error}") from None


class PushServerGate:
    """Checks calls before their methods, streaming ones too (P22). `access` is None without TLS: no identities."""

    def __init__(self, access: AccessList | None, condition: Condition) -> None:
        self._access, self._condition = access, condition

    def handlers(self, service: str, answers: "Mapping[wire.Method[Any, Any], Callable[..., Any]]") -> Any:
        """Return the methods of a service for a server. Requests are parsed after the checks."""
        methods = {}
        for method, answer in answers.items():
            is_stream = inspect.isasyncgenfunction(answer)
            answer_checked = self._stream(method, answer) if is_stream else self._single(method, answer)
            kind: Any = grpc.unary_stream_rpc_method_handler if is_stream else grpc.unary_unary_rpc_method_handler
            methods[method.name] = kind(answer_checked, response_serializer=method.answer.SerializeToString)
        return grpc.method_handlers_generic_handler(service, methods)

    def _single(self, method: wire.Method[Any, Any], answer: Callable[[Any, Context], Awaitable[Any]]) -> Any:
        async def answer_checked(request: bytes, context: Context) -> Any:
            began = time.monotonic()
            try:
                return await answer(await self._read_admitted(method, request, context), context)
            finally:
                took = round((time.monotonic() - began) * 1000, 3)
                logger.debug("call", method=method.path, code=str(context.code()), milliseconds=took)

        return answer_checked

    def _stream(self, method: wire.Method[Any, Any], answer: Callable[[Any, Context], AsyncIterator[Any]]) -> Any:
        async def answer_checked(request: bytes, context: Context) -> AsyncIterator[Any]:
            async for each in answer(await self._read_admitted(method, request, context), context):
                yield each

        return answer_checked

    async def _read_admitted(self, method: wire.Method[Any, Any], request: bytes, context: Context) -> Any:
        if self._access is not None and not self._access.permits(context.auth_context()):
            logger.warning("call.unauthorised", method=method.path, peer=context.peer())
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHORISED")
        if not self._condition.is_ok and method.path not in _HEALTH_METHODS:
            await context.abort(grpc.StatusCode.INTERNAL, UNHEALTHY_TEXT)
        try:
            return method.request.FromString(request)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "The request cannot be read")


class PushService:
    """The methods, with those of gRPC's health. The gate has admitted their callers."""

    def __init__(self, follower: Follower, condition: Condition) -> None:
        self._follower, self._condition = follower, condition

    async def activate(
        self, request: pb.ActivateSubscriptionRequest, context: Context
    ) -> pb.ActivateSubscriptionResponse:
        """Start delivering, without waiting for a first delivery."""
        sent = request.subscription
        whole = request.HasField("subscription") and sent.HasField("push_config")
        if not whole or not sent.push_config.HasField("retry_policy"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Empty subscription")
        if self._follower.workers.state(sent.full_name) is not None:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, f"Subscription {sent.full_name} is already activated")
        try:
            target = of_message(sent)
        except InvalidTarget as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self._follower.way.activate(target)
        logger.info("subscription.activated", subscription=target.path)
        return pb.ActivateSubscriptionResponse(message=f"Subscription {target.path} activated")

    async def deactivate(
        self, request: pb.DeactivateSubscriptionRequest, context: Context
    ) -> pb.DeactivateSubscriptionResponse:
        """Stop delivering. Deliveries in flight finish in the background (P8)."""
        await self._require_state(request.full_name, context)
        self._follower.way.deactivate(request.full_name)
        logger.info("subscription.deactivated", subscription=request.full_name)
        return pb.DeactivateSubscriptionResponse(message=f"Subscription {request.full_name} deactivated")

    async def subscription_status(
        self, request: pb.SubscriptionStatusRequest, context: Context
    ) -> pb.SubscriptionStatusResponse:
        """Return the state of a delivery."""
        state = await self._require_state(request.full_name, context)
        return pb.SubscriptionStatusResponse(status=text(request.full_name, state))

    async def status(self, _request: pb.StatusRequest, context: Context) -> pb.StatusResponse:
        """Return that the server is healthy; otherwise an error with the reason."""
        if not self._condition.is_ok:
            # A full stop without a blank: the contract's text.
            await context.abort(grpc.StatusCode.INTERNAL, f"{UNHEALTHY_TEXT}.{self._condition.text}")
        return pb.StatusResponse()

    async def check(self, request: Any, context: Context) -> Any:
        """Return the health of the whole server, `""`. While it is unhealthy, no call comes so far."""
        if request.service:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return self._health()

    async def watch(self, request: Any, _context: Context) -> AsyncIterator[Any]:
        """Yield the health, and again at every change."""
        while True:
            changed = self._condition.changed
            unknown = HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
            yield unknown if request.service else self._health()
            await changed.wait()

    def _health(self) -> Any:
        kinds = HealthCheckResponse
        return kinds(status=kinds.SERVING if self._condition.is_ok else kinds.NOT_SERVING)

    async def _require_state(self, path: str, context: Context) -> WorkerState:
        if (state := self._follower.workers.state(path)) is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Subscription {path} is not active")
        return state


@contextlib.asynccontextmanager
async def listening(settings: PushSettings, follower: Follower, condition: Condition) -> AsyncIterator[str]:
    """Answer calls until the block ends; yields host and port. Raises `BadSettings` and `Unusable` with one line."""
    access = AccessList(settings.acl) if settings.tls_enabled else None
    gate, service = PushServerGate(access, condition), PushService(follower, condition)
    methods: dict[wire.Method[Any, Any], Callable[..., Any]] = {
        wire.ACTIVATE: service.activate, wire.DEACTIVATE: service.deactivate,
        wire.SUBSCRIPTION_STATUS: service.subscription_status, wire.STATUS: service.status,
    }  # fmt: skip
    health = gate.handlers(wire.HEALTH, {wire.CHECK: service.check, wire.WATCH: service.watch})
    server = grpc.aio.server(options=(*_OPTIONS, ("grpc.max_allowed_incoming_connections", MAX_CONNECTIONS)))
    server.add_generic_rpc_handlers((gate.handlers(wire.SERVICE, methods), health))
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
    """Return TLS credentials (1.2 or later, client certificates required). Files are read again for each connection."""
    if not settings.tls_enabled:
        return None

    def read_files() -> tuple[bytes, bytes, bytes]:
        chain, key = wire.read_file("cert", settings.cert), wire.read_file("key", settings.key)
        return chain, key, wire.authorities(settings.certificate_authorities_dir)

    known = read_files()

    def configuration() -> grpc.ServerCertificateConfiguration:
        chain, key, roots = known
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=roots)

    def changed() -> Any:
        nonlocal known
        try:
            before, known = known, read_files()
        except BadSettings as error:
            logger.error("certificate.unusable", reason=str(error))
            return None  # the present one goes on
        if known == before:
            return None
        logger.info("certificate.loaded", chain=settings.cert)
        return configuration()

    return grpc.dynamic_ssl_server_credentials(configuration(), changed, require_client_authentication=True)
