"""The service as a client of a push server: every call ends soon, and its outcome is worded for people.

A keeper of `ams.service.push.pushing.PushServer`, without importing it: that is above this package.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

import grpc
import structlog
from grpc_health.v1 import health_pb2

from ams.core.errors import BadSettings
from ams.push.rpc import push_service_pb2 as pb
from ams.push.rpc import wire
from ams.push.rpc.channel import PushServerAddress, connect, trust
from ams.push.rpc.wire import A, Method, Q
from ams.push.upstream import Target

SECONDS = 3.0  # for a call, connecting included (push contract 15, P29)
AWAY = "Push server is currently unavailable"
_AWAY_CODES = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})
_CHECK = f"/{wire.HEALTH}/Check"

R = TypeVar("R")
logger = structlog.get_logger("ams.push_rpc")


class Outcome(NamedTuple):
    """What came of a call."""

    code: grpc.StatusCode
    text: str  # the answer's text, or the error's as the transport words it

    @property
    def is_ok(self) -> bool:
        """Whether it was carried out."""
        return self.code is grpc.StatusCode.OK

    @property
    def is_away(self) -> bool:
        """Whether there was no answer."""
        return self.code in _AWAY_CODES

    @property
    def is_unknown(self) -> bool:
        """Whether the push server has no such subscription."""
        return self.code is grpc.StatusCode.NOT_FOUND

    def worded(self) -> str:
        """Return what clients of the service read (push contract 13.2)."""
        if self.is_ok:
            return self.text
        return AWAY if self.is_away else f"Error: {self.text}"


class GrpcPushServer:
    """A push server elsewhere: ours or the reference's. One connection, made when it is first needed.

    Making one raises `BadSettings` when a file of certificates cannot be used.
    """

    def __init__(self, place: PushServerAddress, seconds: float = SECONDS) -> None:
        self._place = place
        self._trust = trust(place)
        self._seconds = seconds
        self._channel: grpc.aio.Channel | None = None
        self._connecting = asyncio.Lock()

    async def close(self) -> None:
        """Let go of the connection; calls under way end."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def activate(self, target: Target) -> Outcome:
        """Let it deliver a target; it may answer that it does so already."""
        request = pb.ActivateSubscriptionRequest(subscription=wire.subscription(target))
        return await self._ask(wire.ACTIVATE, request, lambda answer: answer.message)

    async def deactivate(self, path: str) -> Outcome:
        """Let it deliver a subscription no more."""
        request = pb.DeactivateSubscriptionRequest(full_name=path)
        return await self._ask(wire.DEACTIVATE, request, lambda answer: answer.message)

    async def look(self, path: str) -> Outcome:
        """Ask how the delivery of a subscription goes."""
        request = pb.SubscriptionStatusRequest(full_name=path)
        return await self._ask(wire.SUBSCRIPTION_STATUS, request, lambda answer: answer.status)

    async def status(self, path: str) -> str:
        """Return how the delivery of a subscription goes; `path` is its resource name."""
        return (await self.look(path)).worded()

    async def deactivated(self, path: str) -> str:
        """Return what becomes of the delivery of a subscription that was deleted."""
        return (await self.deactivate(path)).worded()

    async def health(self, *, details: bool) -> str:
        """Return the health of the server itself; with `details`, as its transport words it (HTTP contract 14.5).

        What is not healthy is asked for its state, which says why (push contract 15, P34).
        """
        checked = await self._check()
        if not checked.is_ok and not checked.is_away:
            checked = await self._ask(wire.STATUS, pb.StatusRequest(), lambda _: "ok")
        return checked.text if checked.is_away and details else checked.worded()

    async def _check(self) -> Outcome:
        async def call(channel: grpc.aio.Channel) -> str:
            ask = channel.unary_unary(
                _CHECK,
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            answer = await ask(health_pb2.HealthCheckRequest(), timeout=self._seconds)
            return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

        return await self._outcome(call)

    async def _ask(self, method: Method[Q, A], request: Q, text: Callable[[A], str]) -> Outcome:
        async def call(channel: grpc.aio.Channel) -> str:
            ask = channel.unary_unary(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.answer.FromString,
            )
            return text(await ask(request, timeout=self._seconds))

        return await self._outcome(call)

    async def _outcome(self, call: Callable[[grpc.aio.Channel], Awaitable[str]]) -> Outcome:
        try:
            async with asyncio.timeout(self._seconds):
                return Outcome(grpc.StatusCode.OK, await call(await self._connected()))
        except grpc.aio.AioRpcError as error:
            outcome = Outcome(error.code(), error.details() or error.code().name)
        except TimeoutError:
            outcome = Outcome(grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer within {self._seconds:g} seconds")
        except OSError as error:
            outcome = Outcome(grpc.StatusCode.UNAVAILABLE, str(error) or type(error).__name__)
        if outcome.is_away and self._has_changed():
            await self.close()
        return outcome

    async def _connected(self) -> grpc.aio.Channel:
        async with self._connecting:
            if self._channel is None:
                self._channel = await connect(self._place, self._trust)
            return self._channel

    def _has_changed(self) -> bool:
        """Whether a new connection may do better: our files were renewed, or the server's certificate, unverified."""
        if not self._place.tls:
            return False
        before = self._trust
        try:
            self._trust = trust(self._place)
        except BadSettings as error:  # they are being written, perhaps; the next call looks again
            logger.warning("push_server.certificates_unusable", reason=str(error))
        return self._trust != before or not self._place.verify
