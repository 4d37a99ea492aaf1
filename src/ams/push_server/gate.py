"""The gate of the gRPC server: every call is checked for who asks and for the server's condition (push contract 4)."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import structlog

from ams.push_rpc.wire import HEALTH, STATUS
from ams.push_server.access import AccessList
from ams.push_server.condition import Condition

UNAUTHORISED = "UNAUTHORISED"
UNABLE = "The push service is currently unable to handle any requests"

_WHATEVER_THE_CONDITION = frozenset({STATUS.path, f"/{HEALTH}/Watch"})
"""What says how the server is, and why."""

logger = structlog.get_logger("ams.push_server")

Context = grpc.aio.ServicerContext[Any, Any]


class Gate(grpc.aio.ServerInterceptor):
    """Lets calls through, streaming ones too (P22); `access` is None without TLS, when nobody can be told apart."""

    def __init__(self, access: AccessList | None, condition: Condition) -> None:
        self._access = access
        self._condition = condition

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the handler of a call behind the checks."""
        handler: Any = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        codec = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(self._stream(method, handler.unary_stream), **codec)
        return grpc.unary_unary_rpc_method_handler(self._single(method, handler.unary_unary), **codec)

    def _single(self, method: str, answer: Callable[[Any, Context], Awaitable[Any]]) -> Any:
        async def checked(request: Any, context: Context) -> Any:
            began = time.monotonic()
            try:
                await self._check(method, context)
                return await answer(request, context)
            finally:
                took = round((time.monotonic() - began) * 1000, 3)
                logger.debug("call", method=method, code=str(context.code()), milliseconds=took)

        return checked

    def _stream(self, method: str, answer: Callable[[Any, Context], AsyncIterator[Any]]) -> Any:
        async def checked(request: Any, context: Context) -> AsyncIterator[Any]:
            await self._check(method, context)
            async for each in answer(request, context):
                yield each

        return checked

    async def _check(self, method: str, context: Context) -> None:
        if self._access is not None and not self._access.permits(context.auth_context()):
            logger.warning("call.unauthorised", method=method, peer=context.peer())
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, UNAUTHORISED)
        if not self._condition.is_ok and method not in _WHATEVER_THE_CONDITION:
            await context.abort(grpc.StatusCode.INTERNAL, UNABLE)
