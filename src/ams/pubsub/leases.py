"""Leases of consumers: the subscription of a call, and what settles ack ids, for single calls and for streams."""

from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

from ams.core.ack_ids import MAX_ACK_DEADLINE, AckId, AckIds, NeverGiven, ack_ids_of, exclude_ids, read_hand_out
from ams.core.errors import Conflict, InvalidInput
from ams.core.names import SubscriptionName
from ams.pubsub.calls import PubsubCall
from ams.pubsub.errors import PERMANENT, UNORDERED, FailedAckIds
from ams.pubsub.protos import Message
from ams.pubsub.requests import AGENT, Context, is_secure
from ams.service.delivery import Deliverer
from ams.service.lookup import find_subscription
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.parallel.settlement import LateIds, holder_of
from ams.storage.registry.records import Subscription

MAX_ID_BYTES = 524_288
MAX_RESPONSE_BYTES = 3_500_000  # bytes of messages in one answer: some clients take no answer of 4 MiB
ORDERED = (
    "This subscription is an ordered one of AMS: it has one position for all its consumers and no leases of messages."
    " Use the AMS API for it, or a subscription of type parallel."
)
BAD_ID = "You have passed an invalid ack ID to the service (it is none that a message was given with)."


class Leases:
    """Finds the subscription of a consumer's call, and settles ack ids."""

    def __init__(self, deliverer: Deliverer, working: ParallelSubscriptions) -> None:
        self.deliverer, self.working = deliverer, working

    async def subscription(self, call: PubsubCall) -> Subscription:
        """Return a parallel subscription that the caller may consume. Raises `NotFound`, `Conflict`, `NotAllowed`."""
        found = await find_subscription(self.deliverer.registry, call.caller, SubscriptionName(call.name.leaf))
        if found.is_detached:
            raise Conflict(f"Subscription {call.name.path} is detached.")
        if found.push is not None:
            raise Conflict("This method is not supported for this subscription type.")
        found = await self.deliverer.to_acknowledge(call.caller, found.name)
        if found.parallel is None:
            raise Conflict(ORDERED)
        return found

    async def acknowledge(self, call: PubsubCall, subscription: Subscription, ids: Sequence[str]) -> None:
        """Acknowledge messages. Late ids are ignored; with exactly-once delivery they raise `FailedAckIds`."""
        settle = partial(self.working.settler.acknowledge, subscription)
        await self._settle(call, subscription, ids, settle)

    async def extend(self, call: PubsubCall, subscription: Subscription, ids: Sequence[str], seconds: int) -> None:
        """Let leases end in so many `seconds`; 0 is a nack. Late ids as for `acknowledge`."""
        holder = holder_of(call.caller)
        settle = partial(self.working.settler.extend, subscription, seconds=seconds, holder=holder)
        await self._settle(call, subscription, ids, settle)

    async def _settle(
        self,
        call: PubsubCall,
        subscription: Subscription,
        ids: Sequence[str],
        settle: Callable[[AckIds], Awaitable[None]],
    ) -> None:
        """Settle each id independently. Raises `InvalidInput` for an unreadable id, before anything is done."""
        left = _read_ids(ids)
        failed: list[AckId] = []
        out_of_order: AbstractSet[AckId] = frozenset()
        while left:
            try:
                await settle(left)
                break
            except LateIds as late:  # the others are done
                failed += late.ids
                out_of_order = late.out_of_order
                break
            except NeverGiven as error:  # nothing is done
                failed += error.ids
                left = exclude_ids(left, error.ids)
        options = subscription.parallel
        if failed and options is not None and options.enable_exactly_once_delivery:
            reasons = {
                f"{each.offset}-{each.hand_out}": UNORDERED if each in out_of_order else PERMANENT for each in failed
            }
            raise FailedAckIds(reasons, ids, names_all=takes_long_errors(call.context))


def _read_ids(ids: Sequence[str]) -> AckIds:
    if any(each.startswith("0") and not each.startswith("0-") for each in ids):  # another spelling of an id
        raise InvalidInput(BAD_ID)
    try:
        found = ack_ids_of("", ids)
        for hand_out in found:
            read_hand_out(hand_out)
    except InvalidInput:
        raise InvalidInput(BAD_ID) from None
    return found


def takes_long_errors(context: Context) -> bool:
    """Return whether a client accepts an error that names very many ids.

    Google's libraries accept it over TLS; without TLS most accept 8 KiB. The library for Java needs all ids in any
    case: it takes ids that an error does not name for settled.
    """
    agents = [str(value) for name, value in context.invocation_metadata() or () if name in ("user-agent", AGENT)]
    return is_secure(context) or any("grpc-java" in each for each in agents)


def check_seconds(seconds: int) -> None:
    """Raise `InvalidInput` for a deadline outside 0 to 600 seconds."""
    if not 0 <= seconds <= MAX_ACK_DEADLINE:
        raise InvalidInput(
            f"Invalid ack deadline given (ack_deadline={seconds}). The ack deadline must be between 0 and"
            f" {MAX_ACK_DEADLINE} seconds."
        )


def check_ids(request: Message, ids: Sequence[str]) -> None:
    """Raise `InvalidInput` without ids, and for a request that is too large."""
    if not ids:
        raise InvalidInput("You have not specified an ack ID in the request.")
    check_size(request)


def check_size(request: Message) -> None:
    """Raise `InvalidInput` for a request with too many ids."""
    if request.ByteSize() > MAX_ID_BYTES:
        raise InvalidInput(f"The request is too large: at most {MAX_ID_BYTES} bytes of ack IDs are allowed.")
