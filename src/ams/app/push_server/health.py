"""The standard health service of gRPC, for the server as a whole (push contract 4)."""

from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from ams.app.push_server.condition import Condition
from ams.push.rpc.wire import HEALTH

Answer = Any
"""health_pb2.HealthCheckResponse; the package has no types."""


class Health:
    """Tells whether the server can work. Other services than the whole, `""`, are unknown."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the methods for a server."""
        codec = {
            "request_deserializer": health_pb2.HealthCheckRequest.FromString,
            "response_serializer": health_pb2.HealthCheckResponse.SerializeToString,
        }
        methods = {
            "Check": grpc.unary_unary_rpc_method_handler(self.check, **codec),
            "Watch": grpc.unary_stream_rpc_method_handler(self.watch, **codec),
        }
        return grpc.method_handlers_generic_handler(HEALTH, methods)

    async def check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Answer:
        """Answer how it is; while the server cannot work, nobody comes so far."""
        if request.service:
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return self._now()

    async def watch(self, request: Any, _context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Answer]:
        """Answer how it is, and again at every change."""
        while True:
            if request.service:
                yield health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
            else:
                yield self._now()
            await self._condition.change()

    def _now(self) -> Answer:
        kinds = health_pb2.HealthCheckResponse
        return kinds(status=kinds.SERVING if self._condition.is_ok else kinds.NOT_SERVING)
