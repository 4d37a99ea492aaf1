"""Background sweeper: lease expiry, dead letters, closing of idle subscriptions."""

from collections.abc import Callable

import structlog

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import AmsError, NotFound
from ams.core.supervisor import Supervisor, Ticker
from ams.push.upstream import Verdict
from ams.service.dead_letters import NOT_ACKNOWLEDGED, DeadLetters
from ams.service.parallel.ack_storer import Storer
from ams.service.parallel.backlog import Settling
from ams.service.parallel.open_subscriptions import MAX_SWEEP_INTERVAL_MS, OpenSubscription, OpenSubscriptions

PART = "leases of messages"
IDLE_MS = Milliseconds(600_000)  # a subscription that is unused for this time, without leases or retries, is closed
logger = structlog.get_logger("ams.parallel")


class Sweeper:
    """Sweeps the open subscriptions."""

    def __init__(self, opened: OpenSubscriptions, storer: Storer, dead_letters: DeadLetters, clock: Clock) -> None:
        self._opened, self._storer, self._letters, self._clock = opened, storer, dead_letters, clock
        self.dead_letters = 0  # dead letters stored since the start
        self._supervisor = Supervisor()
        self.rounds = Ticker(PART, MAX_SWEEP_INTERVAL_MS / 1000, self._sweep)
        opened.wake_sweeper = self.rounds.soon

    async def start(self, supervisor: Supervisor) -> None:
        """Sweep in the background, until `rounds` are closed."""
        self._supervisor, self.rounds.seconds = supervisor, self._opened.seconds_until_due()
        await self.rounds.start(supervisor)

    async def _sweep(self) -> None:
        await self.sweep_once(self._supervisor.log_failure)
        self.rounds.seconds = self._opened.seconds_until_due()

    async def sweep_once(self, log_failure: Callable[[str], None]) -> None:
        """Sweep all open subscriptions; log errors, so that a defect of one does not stop the sweep of others."""
        for opened in list(self._opened.all()):
            try:
                await self._sweep_subscription(opened)
            except NotFound:  # deleted, perhaps on another node
                self._opened.leave(opened.subscription.id)
            except AmsError as error:
                logger.warning("leases.put_off", subscription=opened.subscription.name, reason=error.message)
            except Exception:
                log_failure(PART)

    async def _sweep_subscription(self, opened: OpenSubscription) -> None:
        """Handle expired leases, ended backoffs and messages to dead-letter. Errors propagate to `sweep_once`."""
        if not self._opened.holds(opened.subscription.id):
            self._opened.forget(opened.subscription.id)
            return
        await self._opened.retain(opened)
        opened.wake_served()
        await self._storer.expire(opened)
        if opened.backlog.failures.dead:
            await self._put_aside(opened)
        if opened.backlog.done.passed:
            await self._storer.store(opened, Settling())
        is_idle = self._clock.monotonic() - opened.used > IDLE_MS and not opened.waiting
        if is_idle and not opened.backlog.out and not opened.backlog.held_back:
            self._opened.leave(opened.subscription.id)

    async def _put_aside(self, opened: OpenSubscription) -> None:
        """Store dead letters of messages that used up their attempts; retry later what cannot be stored."""
        backlog = opened.backlog
        while backlog.failures.dead:
            offset = backlog.failures.dead.pop()
            verdict = opened.verdicts.pop(offset, None) or Verdict(NOT_ACKNOWLEDGED, backlog.failures.counts[offset], 0)
            try:
                await self._letters.put(
                    opened.subscription, opened.project, opened.topic, offset, verdict, epoch=backlog.epoch
                )
                await self._storer.settle(opened, backlog.put_aside(offset))
                opened.dead_letters += 1
                self.dead_letters += 1
                opened.kept_because = ""
            except AmsError as error:
                name = opened.subscription.name
                logger.warning("dead_letter.put_off", subscription=name, offset=offset, reason=error.message)
                opened.kept_because = error.message
                backlog.retry_dead_letter(offset, self._clock.monotonic())
            except BaseException:
                backlog.failures.dead.append(offset)
                raise
