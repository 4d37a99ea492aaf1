"""After a failure: how long to wait, how many messages the next delivery has, and which message is put aside.

A policy governs waits after failures only; after a success the next delivery goes at once (push contract 15, P10). What
slowstart keeps in mind moves with successes too, an empty pull among them (P5), so that a delivery that works forgets.
Waits are pure: policy, history and a random number in, a delay out.

How much goes into a delivery doubles while all goes well, and halves when it does not. A message that is refused is
found by this too: halving ends with bodies of one message. One that is refused again and again would hold up all behind
it (P11). Where there is a dead letter topic it goes there, once it was alone in a body, so that it is known to be the
one, and was refused as often as configured.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ams.core.ack_ids import MAX_ACK_DEADLINE
from ams.core.backoff import Backoff
from ams.core.push_config import DEFAULT_PERIOD, EXPONENTIAL, MATTERMOST, MOST_PERIOD, SLOWSTART, PushConfig
from ams.push.upstream import Pulled

JITTER = 0.15  # part by which a delay varies, so that what failed together is not tried together (P14)

SLOWSTART_FIRST, SLOWSTART_LEAST, SLOWSTART_MOST = 1000, 300, 24 * 3_600_000  # milliseconds (push contract 9.2)
LINEAR_MOST = 60_000  # milliseconds: the longest linear delay, but never below the period itself
EXPONENTIAL_MOST = 3_600_000  # milliseconds
REFUSED_FIRST, REFUSED_MOST = 60_000, 600_000
"""Milliseconds: what only a change of rights or settings can repair is tried this seldom, whatever the policy (P21)."""
RETRY_AFTER_MOST = 3600.0  # seconds: an endpoint that asks for more is asked again after these

MESSAGE_MOST = MAX_ACK_DEADLINE * 1000  # milliseconds: the longest wait of a message of a parallel subscription

UNREACHED = Backoff(1.0, 60.0, jitter=(0.0, 1.0), least=1.0)
"""Seconds between tries to reach a service that does not answer (push contract 15, P2)."""
AWAY_MOST, UNSTORED_MOST = 30_000, 600_000
"""Milliseconds: the longest wait for a service that gives no messages, so that all goes on when it is back, and for one
that stores no acknowledgements, as the endpoint gets the same again each time."""

FIRST = 100
"""Messages of the first delivery, where the configuration allows them: enough that a request's own cost does not count,
few enough that a new endpoint is not given much to do at once."""
MAX_BYTES = 256 * 1024
"""Of the messages of one delivery, but for a single one that is larger: this bounds the memory of a worker."""
SLOW_SECONDS = 5.0  # an answer that took longer, or longer than a third of its time, asks for less
ACCEPTED = frozenset({102, 200, 201, 202, 204})  # statuses of endpoints that took the messages (P17)
ACCEPTED_BY_MATTERMOST = frozenset({200})
GONE = 410  # the endpoint wants nothing any more
ASKS_FOR_TIME = frozenset({429, 503})  # statuses whose `Retry-After` is kept to
NOT_OF_THE_MESSAGE = frozenset({408, 410, 425, 429, 502, 503, 504})  # of the endpoint, not of what was sent
OF_THE_MESSAGE = frozenset({400, 413, 415, 422})  # of what was sent: the next message may be accepted


class Policy(NamedTuple):
    """A retry policy; made of a configuration by `policy_of`."""

    type: str  # `linear`, `slowstart` or `exponential`; anything else counts as linear
    period: int  # milliseconds; slowstart has no use for it


class History(NamedTuple):
    """Failures of the cycles so far."""

    failures: int = 0  # in a row
    last: int = SLOWSTART_FIRST  # the delay slowstart came to, in milliseconds; the others leave it alone


def policy_of(config: PushConfig) -> Policy:
    """Return the policy of a push configuration."""
    period = config.retry_period if config.retry_period > 0 else DEFAULT_PERIOD
    return Policy(config.retry_policy, min(period, MOST_PERIOD))


def succeeded(policy: Policy, state: History) -> History:
    """Return the state after a delivery, or after a pull that found nothing."""
    if policy.type != SLOWSTART:
        return state if not state.failures else History()
    last = SLOWSTART_FIRST if state.failures else max(state.last // 2, SLOWSTART_LEAST)
    return state if not state.failures and last == state.last else History(0, last)


def failed(policy: Policy, state: History, *, retry_after: float | None, random: float) -> tuple[History, int]:
    """Return the state after a failure, and the milliseconds to wait; `retry_after`: seconds the endpoint asked for."""
    state = History(state.failures + 1, min(state.last * 2, SLOWSTART_MOST) if policy.type == SLOWSTART else state.last)
    if policy.type == EXPONENTIAL:
        delay = int(longest(policy, state) * random)  # full jitter
    else:
        delay = _jittered(longest(policy, state), random)
    if retry_after is None:
        return state, delay
    # A little more than asked for, for each differently: many get the same answer.
    asked = int(1000 * min(max(retry_after, 0.0), RETRY_AFTER_MOST) * (1 + JITTER * random))
    return state, max(delay, asked)


def away(policy: Policy, state: History, most: int, *, random: float) -> tuple[History, int]:
    """Return the same after a failure that is not the endpoint's: what it is made to wait for grows to `most` only."""
    after, wait = failed(policy, state, retry_after=None, random=random)
    return (after, wait) if wait <= most else (state, _jittered(most, random))


def refused(state: History, *, random: float) -> tuple[History, int]:
    """Return the same after what will not work until rights or settings are changed."""
    nominal = min(REFUSED_FIRST << min(state.failures, 8), REFUSED_MOST)
    return state._replace(failures=state.failures + 1), _jittered(nominal, random)


def message_wait(policy: Policy, failures: int, *, random: float) -> int:
    """Return the milliseconds after which a message of a parallel subscription comes again that failed so often."""
    last = min(SLOWSTART_FIRST << min(failures - 1, 32), SLOWSTART_MOST)
    _, wait = failed(policy, History(failures - 1, last), retry_after=None, random=random)
    return min(wait, MESSAGE_MOST)


def longest(policy: Policy, state: History) -> int:
    """Return the delay in milliseconds after the failures of `state`, before there is chance in it."""
    if policy.type == SLOWSTART:
        return state.last
    if policy.type == EXPONENTIAL:
        doublings = min(state.failures - 1, 32)  # bounded: it may fail for months
        return min(policy.period << doublings, EXPONENTIAL_MOST)
    return min(policy.period * state.failures, max(policy.period, LINEAR_MOST))


def _jittered(delay: int, random: float) -> int:
    return int(delay * (1 - JITTER + 2 * JITTER * random))


def first_batch(most: int) -> int:
    """Return how many messages to begin with; `most` is what the configuration allows."""
    return max(1, min(most, FIRST))


def batch_after(batch: int, most: int, *, messages: int, seconds: float, limit: float) -> int:
    """Return how many messages the next delivery may have after one of `messages` that took `seconds` of `limit`."""
    if seconds > min(SLOW_SECONDS, limit / 3):
        return halved(messages)
    return max(1, min(batch * 2, most)) if messages >= batch else batch  # one not full says nothing about more


def halved(messages: int) -> int:
    """Return how many messages the next delivery may have after one of `messages` that failed, full or not."""
    return max(1, messages // 2)


def accepted(config: PushConfig) -> frozenset[int]:
    """Return the statuses by which an endpoint says that it has the messages."""
    return ACCEPTED_BY_MATTERMOST if config.type == MATTERMOST else ACCEPTED


class Refusals:
    """Counts how often messages were refused, in memory: after a restart it begins anew."""

    def __init__(self, config: PushConfig) -> None:
        self._most = config.max_delivery_attempts if config.dead_letter_topic else 0
        self._counts: dict[int, int] = {}

    def advice(self, messages: Sequence[Pulled], status: int, attempt: int) -> str:
        """Return what to do about a message that an endpoint refuses again and again, and that nothing puts aside."""
        if self._most or len(messages) > 1 or attempt < 2 or status not in OF_THE_MESSAGE:
            return ""
        return (
            f"message {messages[0].message_id} was refused {attempt} times, and holds up those behind it: a"
            " deadLetterTopic would put it aside"
        )

    def refused(self, messages: Sequence[Pulled], status: int) -> int:
        """Note that a body was not accepted; return how often its message was if it shall be put aside now, else 0."""
        if not self._most or status in NOT_OF_THE_MESSAGE:
            return 0
        self._forget_before(messages[0].offset)
        for each in messages:
            self._counts[each.offset] = self._counts.get(each.offset, 0) + 1
        count = self._counts[messages[0].offset]
        return count if len(messages) == 1 and count >= self._most else 0

    def dead_lettered(self) -> None:
        """Note that a message was put aside: it was to blame for the others in its bodies too."""
        self._counts.clear()

    def passed(self, last: Pulled) -> None:
        """Note that everything up to `last` is done with."""
        if self._counts:
            self._forget_before(last.offset + 1)

    def _forget_before(self, offset: int) -> None:
        for each in [each for each in self._counts if each < offset]:
            del self._counts[each]
