"""Retry of deliveries: backoff, batch size, and which message becomes a dead letter.

The retry policy applies after failures only; after a success the next delivery goes at once (push contract 15, P10).
The delay of slowstart also shrinks with successes, empty pulls included (P5). The functions are pure: policy, history
and a random number in, a delay out.

The batch doubles after each success, and halves after each failure. Halving also isolates a refused message. A message
that is refused again and again would block all behind it (P11). With a dead letter topic it goes there, once it was
refused alone as often as configured.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ams.core.ack_ids import MAX_ACK_DEADLINE
from ams.core.backoff import Backoff
from ams.core.push_config import DEFAULT_PERIOD, EXPONENTIAL, MAX_PERIOD_MS, SLOWSTART, PushConfig
from ams.push.upstream import Pulled

JITTER = 0.15  # part by which a delay varies, so that deliveries that failed together are spread (P14)
SLOWSTART_FIRST, SLOWSTART_LEAST, SLOWSTART_MOST = 1000, 300, 24 * 3_600_000  # milliseconds (push contract 9.2)
LINEAR_MOST = 60_000  # milliseconds: the longest linear delay, but never below the period itself
EXPONENTIAL_MOST = 3_600_000  # milliseconds
REFUSED_FIRST, REFUSED_MOST = 60_000, 600_000
"""Milliseconds of backoff when only a change of rights or settings helps, whatever the policy (P21)."""
RETRY_AFTER_MOST = 3600.0  # seconds: an endpoint that asks for more is asked again after these
MESSAGE_MOST = MAX_ACK_DEADLINE * 1000  # milliseconds: the longest wait of a message of a parallel subscription
UNREACHED = Backoff(1.0, 60.0, jitter=(0.0, 1.0), least=1.0)
"""Seconds between tries to reach a service that does not answer (push contract 15, P2)."""
AWAY_MOST, UNSTORED_MOST = 30_000, 600_000
"""Milliseconds of the longest backoff after a failed pull, and after a failed acknowledgement. The latter is longer:
each retry delivers the same messages again."""

FIRST_BATCH = 100
"""Messages of the first delivery, if the configuration allows them: amortises the request, spares a new endpoint."""
MAX_BYTES = 256 * 1024  # of messages in one delivery, unless a single one is larger: bounds the memory of a worker
SLOW_SECONDS = 5.0  # a slower answer, or one slower than a third of its limit, halves the batch
ACCEPTED = frozenset({102, 200, 201, 202, 204})  # statuses of endpoints that took the messages (P17)
ACCEPTED_BY_MATTERMOST = frozenset({200})
GONE = 410  # the endpoint is gone for good
ASKS_FOR_TIME = frozenset({429, 503})  # statuses whose `Retry-After` is honoured
NOT_OF_THE_MESSAGE = frozenset({408, 410, 425, 429, 502, 503, 504})  # of the endpoint, not of what was sent
OF_THE_MESSAGE = frozenset({400, 413, 415, 422})  # of what was sent: the next message may be accepted


class Policy(NamedTuple):
    """A retry policy; made of a configuration by `policy_of`."""

    type: str  # `linear`, `slowstart` or `exponential`; anything else counts as linear
    period: int  # milliseconds; slowstart has no use for it


class FailureHistory(NamedTuple):
    """Failures so far."""

    failures: int = 0  # in a row
    last: int = SLOWSTART_FIRST  # present delay of slowstart, in milliseconds; other policies do not use it


def policy_of(config: PushConfig) -> Policy:
    """Return the policy of a push configuration."""
    period = config.retry_period if config.retry_period > 0 else DEFAULT_PERIOD
    return Policy(config.retry_policy, min(period, MAX_PERIOD_MS))


def after_success(policy: Policy, state: FailureHistory) -> FailureHistory:
    """Return the state after a delivery, or after a pull that found nothing."""
    is_first = policy.type != SLOWSTART or state.failures
    return FailureHistory(0, SLOWSTART_FIRST if is_first else max(state.last // 2, SLOWSTART_LEAST))


def next_backoff(
    policy: Policy, state: FailureHistory, *, retry_after: float | None, random: float
) -> tuple[FailureHistory, int]:
    """Return the state after a failure, and the milliseconds to wait; `retry_after`: seconds the endpoint asked for."""
    last = min(state.last * 2, SLOWSTART_MOST) if policy.type == SLOWSTART else state.last
    state = FailureHistory(state.failures + 1, last)
    longest = longest_delay(policy, state)
    # Full jitter for exponential backoff, a little for the others.
    delay = int(longest * random) if policy.type == EXPONENTIAL else _add_jitter(longest, random)
    if retry_after is None:
        return state, delay
    # Jitter: many subscriptions get the same answer.
    asked = int(1000 * min(max(retry_after, 0.0), RETRY_AFTER_MOST) * (1 + JITTER * random))
    return state, max(delay, asked)


def after_outage(policy: Policy, state: FailureHistory, most: int, *, random: float) -> tuple[FailureHistory, int]:
    """Return state and wait after a failure of the upstream; the wait is at most `most`."""
    after, wait = next_backoff(policy, state, retry_after=None, random=random)
    return (after, wait) if wait <= most else (state, _add_jitter(most, random))


def note_refusal(state: FailureHistory, *, random: float) -> tuple[FailureHistory, int]:
    """Return state and wait after a failure that only a change of rights or settings repairs."""
    nominal = min(REFUSED_FIRST << min(state.failures, 8), REFUSED_MOST)
    return state._replace(failures=state.failures + 1), _add_jitter(nominal, random)


def message_wait(policy: Policy, failures: int, *, random: float) -> int:
    """Retry backoff: return milliseconds for a message of a parallel subscription after this many failures."""
    last = min(SLOWSTART_FIRST << min(failures - 1, 32), SLOWSTART_MOST)
    _, wait = next_backoff(policy, FailureHistory(failures - 1, last), retry_after=None, random=random)
    return min(wait, MESSAGE_MOST)


def longest_delay(policy: Policy, state: FailureHistory) -> int:
    """Return the delay in milliseconds after the failures of `state`, before jitter."""
    if policy.type == SLOWSTART:
        return state.last
    if policy.type == EXPONENTIAL:
        doublings = min(state.failures - 1, 32)  # bounded: it may fail for months
        return min(policy.period << doublings, EXPONENTIAL_MOST)
    return min(policy.period * state.failures, max(policy.period, LINEAR_MOST))


def _add_jitter(delay: int, random: float) -> int:
    return int(delay * (1 - JITTER + 2 * JITTER * random))


def first_batch(most: int) -> int:
    """Return the first batch size; `most` is the configured maximum."""
    return max(1, min(most, FIRST_BATCH))


def batch_after(batch: int, most: int, *, messages: int, seconds: float, limit: float) -> int:
    """Return the next batch size after a delivery of `messages` that took `seconds` of `limit`."""
    if seconds > min(SLOW_SECONDS, limit / 3):
        return half_batch(messages)
    return max(1, min(batch * 2, most)) if messages >= batch else batch  # only a full batch is a reason to grow


def half_batch(messages: int) -> int:
    """Return the next batch size after a failed delivery of `messages`."""
    return max(1, messages // 2)


class Refusals:
    """Counts refusals of messages in memory: a restart resets it."""

    def __init__(self, config: PushConfig) -> None:
        self._most = config.max_delivery_attempts if config.dead_letter_topic else 0
        self._counts: dict[int, int] = {}

    def advice(self, messages: Sequence[Pulled], status: int, attempt: int) -> str:
        """Return advice about a message that is refused again and again, without a dead letter topic."""
        if self._most or len(messages) > 1 or attempt < 2 or status not in OF_THE_MESSAGE:
            return ""
        return (
            f"message {messages[0].message_id} was refused {attempt} times, and holds up those behind it: a"
            " deadLetterTopic would put it aside"
        )

    def note_refusal(self, messages: Sequence[Pulled], status: int) -> int:
        """Count a refused body; return the refusals of its only message if that is to be dead-lettered, else 0."""
        if not self._most or status in NOT_OF_THE_MESSAGE:
            return 0
        self._forget_before(messages[0].offset)
        for each in messages:
            self._counts[each.offset] = self._counts.get(each.offset, 0) + 1
        count = self._counts[messages[0].offset]
        return count if len(messages) == 1 and count >= self._most else 0

    def dead_lettered(self) -> None:
        """Reset all counts: the dead letter was the reason for refusals of messages beside it."""
        self._counts.clear()

    def forget_up_to(self, last: Pulled) -> None:
        """Forget counts of messages up to `last`."""
        if self._counts:
            self._forget_before(last.offset + 1)

    def _forget_before(self, offset: int) -> None:
        self._counts = {each: count for each, count in self._counts.items() if each >= offset}
