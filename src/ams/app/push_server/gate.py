"""The gate of the gRPC server: every call is checked for who asks and for the server's condition (push contract 4)."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError

from ams.app.push_server.access import AccessList
from ams.app.push_server.condition import Condition
from ams.push.rpc.wire import HEALTH, STATUS

UNAUTHORISED = "UNAUTHORISED"
UNREADABLE = "The request cannot be read"
UNABLE = "The push service is currently unable to handle any requests"

_WHATEVER_THE_CONDITION = frozenset({STATUS.path, f"/{HEALTH}/Watch"})
"""What says how the server is, and why."""

logger = structlog.get_logger("ams.push_server")

Context = grpc.aio.ServicerContext[Any, Any]
Read = Callable[[bytes], Any]


class Gate(grpc.aio.ServerInterceptor):
    """Lets calls through, streaming ones too (P22); `access` is None without TLS, when nobody can be told apart."""

    def __init__(self, access: AccessList | None, condition: Condition) -> None:
        self._access = access
        self._condition = condition

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the handler of a call behind the checks."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        # Requests are read behind the checks: nobody else's bytes are looked into.
        read, write = handler.request_deserializer, handler.response_serializer
        if handler.unary_stream:
            stream = self._stream(method, read, handler.unary_stream)
            return grpc.unary_stream_rpc_method_handler(stream, response_serializer=write)
        single = self._single(method, read, handler.unary_unary)
        return grpc.unary_unary_rpc_method_handler(single, response_serializer=write)

    def _single(self, method: str, read: Read, answer: Callable[[Any, Context], Awaitable[Any]]) -> Any:
        async def checked(request: bytes, context: Context) -> Any:
            began = time.monotonic()
            try:
                return await answer(await self._admitted(method, read, request, context), context)
            finally:
                took = round((time.monotonic() - began) * 1000, 3)
                logger.debug("call", method=method, code=str(context.code()), milliseconds=took)

        return checked

    def _stream(self, method: str, read: Read, answer: Callable[[Any, Context], AsyncIterator[Any]]) -> Any:
        async def checked(request: bytes, context: Context) -> AsyncIterator[Any]:
            async for each in answer(await self._admitted(method, read, request, context), context):
                yield each

        return checked

    async def _admitted(self, method: str, read: Read, request: bytes, context: Context) -> Any:
        """Return the request of a caller who may ask, read; abort the call otherwise."""
        await self._check(method, context)
        try:
            return read(request)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, UNREADABLE)

    async def _check(self, method: str, context: Context) -> None:
        if self._access is not None and not self._access.permits(context.auth_context()):
            logger.warning("call.unauthorised", method=method, peer=context.peer())
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, UNAUTHORISED)
        if not self._condition.is_ok and method not in _WHATEVER_THE_CONDITION:
            await context.abort(grpc.StatusCode.INTERNAL, UNABLE)
