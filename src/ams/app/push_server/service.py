"""The gRPC methods of a push server, with the answers, codes and texts of push contract 3."""

from collections.abc import Callable
from typing import Any, Protocol

import grpc
import structlog

from ams.app.push_server.condition import Condition
from ams.app.push_server.gate import UNABLE
from ams.app.push_server.targets import Invalid, of_message
from ams.push.rpc import push_service_pb2 as pb
from ams.push.rpc.wire import ACTIVATE, DEACTIVATE, SERVICE, STATUS, SUBSCRIPTION_STATUS, Method
from ams.push.state import text
from ams.push.upstream import Target
from ams.wire.push import WorkerState

logger = structlog.get_logger("ams.push_server")

Context = grpc.aio.ServicerContext[Any, Any]


class Following(Protocol):
    """What this process delivers, and how that is changed from outside."""

    def state(self, path: str) -> WorkerState | None:
        """Return how the delivery of a subscription goes; None when this process does not deliver it."""
        ...

    def activate(self, target: Target) -> None:
        """Take note that a target is to be delivered; what comes of it shows in `state`."""
        ...

    def deactivate(self, path: str) -> None:
        """Take note that a subscription is to be delivered no more."""
        ...


class PushService:
    """The methods; the gate has let their callers through."""

    def __init__(self, following: Following, condition: Condition) -> None:
        self._following = following
        self._condition = condition

    def handlers(self) -> grpc.GenericRpcHandler:
        """Return the methods for a server."""
        methods = dict([
            _handler(ACTIVATE, self.activate),
            _handler(DEACTIVATE, self.deactivate),
            _handler(SUBSCRIPTION_STATUS, self.subscription_status),
            _handler(STATUS, self.status),
        ])  # fmt: skip
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def activate(
        self, request: pb.ActivateSubscriptionRequest, context: Context
    ) -> pb.ActivateSubscriptionResponse:
        """Begin to deliver; no delivery is waited for or tried."""
        told = request.subscription
        whole = request.HasField("subscription") and told.HasField("push_config")
        if not whole or not told.push_config.HasField("retry_policy"):
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Empty subscription")
        if self._following.state(told.full_name) is not None:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, f"Subscription {told.full_name} is already activated")
        try:
            target = of_message(told)
        except Invalid as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self._following.activate(target)
        logger.info("subscription.activated", subscription=target.path)
        return pb.ActivateSubscriptionResponse(message=f"Subscription {target.path} activated")

    async def deactivate(
        self, request: pb.DeactivateSubscriptionRequest, context: Context
    ) -> pb.DeactivateSubscriptionResponse:
        """Deliver no more; what is under way is finished, and not waited for here (P8)."""
        await self._known(request.full_name, context)
        self._following.deactivate(request.full_name)
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
        state = self._following.state(path)
        if state is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Subscription {path} is not active")
        return state


def _handler(method: Method[Any, Any], answer: Callable[..., Any]) -> "tuple[str, grpc.RpcMethodHandler[Any, Any]]":
    return method.name, grpc.unary_unary_rpc_method_handler(
        answer,
        request_deserializer=method.request.FromString,
        response_serializer=method.answer.SerializeToString,
    )
