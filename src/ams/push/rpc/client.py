"""Client of a push server elsewhere: calls with short timeouts, and a loop that keeps its deliveries in step."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import grpc
import structlog
from grpc_health.v1 import health_pb2

from ams.core.backoff import Backoff, Pauses
from ams.core.errors import AmsError, BadSettings
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor, Ticker
from ams.push.rpc import push_service_pb2 as pb
from ams.push.rpc import wire
from ams.push.rpc.wire import A, Method, Q, connect, trust
from ams.push.upstream import Target

CALL_SECONDS = 3.0  # for a call, connecting included (push contract 15, P29)
UNAVAILABLE = "Push server is currently unavailable"
_UNAVAILABLE_CODES = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})

MAX_CONCURRENT_CALLS = 8  # calls under way at the same time
ROUND_SECONDS = 60.0  # from one round to the next, a tenth more or less
_BACKOFF = Backoff(1.0, 10.0)  # seconds between rounds in which it did not answer

logger = structlog.get_logger("ams.push_rpc")


class CallOutcome(NamedTuple):
    """Result of a call."""

    code: grpc.StatusCode
    text: str  # the answer's text, or the error's as the transport words it

    @property
    def is_ok(self) -> bool:
        return self.code is grpc.StatusCode.OK

    @property
    def is_away(self) -> bool:
        """True if there was no answer."""
        return self.code in _UNAVAILABLE_CODES

    @property
    def is_unknown(self) -> bool:
        """True if the push server has no such subscription."""
        return self.code is grpc.StatusCode.NOT_FOUND

    def client_text(self) -> str:
        """Return the text for clients of the service (push contract 13.2)."""
        if self.is_ok:
            return self.text
        return UNAVAILABLE if self.is_away else f"Error: {self.text}"


class DrivenPushServer:
    """A push server elsewhere, over one connection, whose deliveries are kept equal to targets after any failure.

    Compares both at every change and every minute, and repairs differences (push contract 15, P3, P28, P31). A delivery
    that this process did not send is sent again, as it may be outdated. Raises `BadSettings` for bad certificate files.
    """

    def __init__(self, settings: Settings, seconds: float = CALL_SECONDS) -> None:
        self._settings, self._seconds = settings, seconds
        self._trust = trust(settings)
        self._channel: grpc.aio.Channel | None = None
        self._connecting = asyncio.Lock()
        self.targets: Callable[[], Awaitable[Sequence[Target]]]  # since `start`
        self._given: dict[str, Target] = {}  # targets that this process sent
        self.results: dict[str, CallOutcome] = {}  # of the last call about each subscription
        self._places = asyncio.Semaphore(MAX_CONCURRENT_CALLS)
        self._turn = asyncio.Lock()
        self._away: CallOutcome | None = None  # first missing answer of this round: no more calls in it
        self._asked: set[asyncio.Task[bool]] = set()
        self._pauses = Pauses(_BACKOFF)
        self._rounds = Ticker("driving of the push server", ROUND_SECONDS, self._go_on)

    async def start(self, targets: Callable[[], Awaitable[Sequence[Target]]], supervisor: Supervisor) -> None:
        """Keep it in step with `targets`, in the background."""
        self.targets = targets
        self._rounds.soon()
        await self._rounds.start(supervisor)

    async def settle(self, seconds: float = CALL_SECONDS) -> None:
        """Bring it in step now, within so many seconds; failures are retried in the background."""
        asked = asyncio.create_task(self.round())
        self._asked.add(asked)
        asked.add_done_callback(self._asked.discard)
        await asyncio.wait({asked}, timeout=seconds)
        if not asked.done() or not asked.result():
            self._rounds.soon()

    async def close(self) -> None:
        """Stop the rounds and close the connection; the push server continues its deliveries."""
        await self._rounds.close()
        await self._disconnect()

    async def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def activate(self, target: Target) -> CallOutcome:
        """Start the delivery of a target; the answer may be that it is active already."""
        request = pb.ActivateSubscriptionRequest(subscription=wire.subscription(target))
        return await self._ask(wire.ACTIVATE, request, lambda answer: answer.message)

    async def deactivate(self, path: str) -> CallOutcome:
        request = pb.DeactivateSubscriptionRequest(full_name=path)
        return await self._ask(wire.DEACTIVATE, request, lambda answer: answer.message)

    async def look(self, path: str) -> CallOutcome:
        request = pb.SubscriptionStatusRequest(full_name=path)
        return await self._ask(wire.SUBSCRIPTION_STATUS, request, lambda answer: answer.status)

    async def status(self, path: str) -> str:
        return (await self.look(path)).client_text()

    async def deactivation_outcome(self, path: str) -> str:
        return (await self.deactivate(path)).client_text()

    async def health(self, *, details: bool) -> str:
        """Return the health of the server (P34); with `details`, the text of its transport (14.5)."""
        shown = health_pb2.HealthCheckResponse.ServingStatus.Name
        checked = await self._ask(wire.CHECK, health_pb2.HealthCheckRequest(), lambda answer: str(shown(answer.status)))
        if not checked.is_ok and not checked.is_away:
            checked = await self._ask(wire.STATUS, pb.StatusRequest(), lambda _: "ok")
        return checked.text if checked.is_away and details else checked.client_text()

    async def _ask(self, method: Method[Q, A], request: Q, text: Callable[[A], str]) -> CallOutcome:
        try:
            async with asyncio.timeout(self._seconds):
                async with self._connecting:
                    channel = self._channel = self._channel or await connect(self._settings, self._trust)
                read, write = method.answer.FromString, method.request.SerializeToString
                ask = channel.unary_unary(method.path, request_serializer=write, response_deserializer=read)
                return CallOutcome(grpc.StatusCode.OK, text(await ask(request, timeout=self._seconds)))
        except grpc.aio.AioRpcError as error:
            outcome = CallOutcome(error.code(), error.details() or error.code().name)
        except TimeoutError:
            outcome = CallOutcome(grpc.StatusCode.DEADLINE_EXCEEDED, f"no answer within {self._seconds:g} seconds")
        except OSError as error:
            outcome = CallOutcome(grpc.StatusCode.UNAVAILABLE, str(error) or type(error).__name__)
        if outcome.is_away and self._has_changed():
            await self._disconnect()
        return outcome

    def _has_changed(self) -> bool:
        """Return whether to reconnect: our certificate files changed, or the server is not verified."""
        if not self._settings.push_tls_enabled:
            return False
        before = self._trust
        try:
            self._trust = trust(self._settings)
        except BadSettings as error:  # perhaps being written; the next call reads them again
            logger.warning("push_server.certificates_unusable", reason=str(error))
        return self._trust != before or not self._settings.verify_push_server

    async def _go_on(self) -> None:
        pause = min(self._pauses.next(), ROUND_SECONDS)
        try:
            if await self.round():
                self._pauses.reset()
                pause = ROUND_SECONDS
        finally:
            self._rounds.seconds = pause * random.uniform(0.9, 1.1)  # noqa: S311

    async def round(self) -> bool:
        """Compare and repair once; return whether all calls were answered. Raises nothing."""
        async with self._turn:
            try:
                found = await self.targets()
            except AmsError as error:
                logger.warning("push_server.wanted_unknown", reason=error.message)
                return False
            except Exception as error:
                logger.exception("push_server.wanted_unknown", kind=type(error).__name__)
                return False
            # Others would pull one without a topic for ever (P31), and acknowledge a parallel one cumulatively.
            wanted = {each.path: each for each in found if each.topic_id and not each.is_parallel}
            for path in [path for path in self.results if path not in wanted and path not in self._given]:
                del self.results[path]
            gone = [path for path in self._given if path not in wanted]
            self._away = None
            outcomes = await asyncio.gather(*map(self._stop, gone), *map(self._bring, wanted.values()))
            return not any(outcome.is_away for outcome in outcomes)

    async def _stop(self, path: str) -> CallOutcome:
        outcome = await self._one_of_several(path, self.deactivate(path))
        if outcome.is_ok or outcome.is_unknown:
            del self._given[path]
            self.results.pop(path, None)
        else:
            self._note(path, outcome)
        return outcome

    async def _bring(self, target: Target) -> CallOutcome:
        outcome = await self._one_of_several(target.path, self._activate_target(target))
        self._note(target.path, outcome)
        return outcome

    async def _one_of_several(self, path: str, work: Awaitable[CallOutcome]) -> CallOutcome:
        try:
            async with self._places:
                return await work
        except Exception as error:  # a defect must not stop other targets (P4)
            logger.exception("push_server.failed", subscription=path, kind=type(error).__name__)
            return CallOutcome(grpc.StatusCode.INTERNAL, f"unexpected {type(error).__name__}")

    async def _activate_target(self, target: Target) -> CallOutcome:
        """Make the push server deliver exactly this target, not an older one of the same name."""
        if self._away is not None:
            return self._away
        seen = await self.look(target.path)
        if seen.is_away:
            self._away = seen
            return seen
        if seen.is_ok and self._given.get(target.path) == target:
            return seen
        if seen.is_ok:
            stopped = await self.deactivate(target.path)
            if not stopped.is_ok and not stopped.is_unknown:
                return stopped
        elif not seen.is_unknown:
            return seen
        self._given.pop(target.path, None)
        outcome = await self.activate(target)
        if outcome.is_ok:
            self._given[target.path] = target
            logger.info("push_server.activated", subscription=target.path)
        return outcome

    def _note(self, path: str, outcome: CallOutcome) -> None:
        before = self.results.get(path)
        self.results[path] = outcome
        if not outcome.is_ok and (before is None or before.code is not outcome.code):
            logger.warning("push_server.refused", subscription=path, reason=outcome.client_text())
