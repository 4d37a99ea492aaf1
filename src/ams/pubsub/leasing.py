"""What consumers do by single calls: pull, acknowledge, modify deadlines. Streams' clients use these too."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ams.core.ack_ids import MAX_ACK_DEADLINE, AckId, AckIds, NeverGiven, ack_ids_of, read_hand_out, without
from ams.core.errors import Conflict, InvalidInput
from ams.core.names import SubscriptionName
from ams.pubsub import messages, names, protos
from ams.pubsub.calls import Call, Rpc
from ams.pubsub.errors import InvalidAckIds
from ams.pubsub.metadata import Context
from ams.pubsub.names import SUBSCRIPTIONS, Name
from ams.pubsub.protos import Message
from ams.service.delivering import Deliverer
from ams.service.lookup import find_subscription, require_attached
from ams.service.parallel.settling import LateIds, holder_of
from ams.service.parallel.working import Working
from ams.storage.registry.records import Subscription

MOST_PULLED = 1000
MOST_ID_BYTES = 524_288
PART = 3_500_000
"""Bytes of messages in one answer: some clients take no answer of 4 MiB."""
ORDERED = (
    "This subscription is an ordered one of AMS: it has one position for all its consumers and no leases of messages."
    " Use the AMS API for it, or a subscription of type parallel."
)
BAD_ID = "You have passed an invalid ack ID to the service (one of the request is none)."
AGENT = "x-ams-user-agent"
"""Where a node that passes a call on says what its client is."""
_AGENTS = ("user-agent", AGENT)
_JAVA = "grpc-java"
_NO_PULL = "This method is not supported for this subscription type."


class Leases:
    """Finds the subscription of a consumer's call, and settles ids by the rules of its kind."""

    def __init__(self, deliverer: Deliverer, working: Working) -> None:
        self.deliverer = deliverer
        self.working = working

    async def subscription(self, call: Call) -> Subscription:
        """Return the parallel subscription of a call, if the caller may consume it now.

        Raises `NotFound`, `Conflict` for a detached, a push, or an ordered one, `NotAllowed`.
        """
        found = await find_subscription(self.deliverer.registry, call.caller, SubscriptionName(call.name.leaf))
        if found.is_detached:
            raise Conflict(f"Subscription {call.name.path} is detached.")
        require_attached(found)
        if found.push is not None:
            raise Conflict(_NO_PULL)
        found = await self.deliverer.to_acknowledge(call.caller, found.name)
        if found.parallel is None:
            raise Conflict(ORDERED)
        return found

    async def acknowledge(self, call: Call, subscription: Subscription, ids: Sequence[str]) -> None:
        """Acknowledge messages; what came late is done all the same or comes again, with exactly-once it is named."""
        await self._settle(
            call, subscription, ids, lambda some: self.working.settler.acknowledge(subscription, call.project, some)
        )

    async def extend(self, call: Call, subscription: Subscription, ids: Sequence[str], seconds: int) -> None:
        """Let leases end so many seconds from now; 0 gives messages back as failed. Late ids as for `acknowledge`."""
        holder = holder_of(call.caller)
        await self._settle(
            call,
            subscription,
            ids,
            lambda some: self.working.settler.extend(subscription, call.project, some, seconds, holder=holder),
        )

    async def _settle(
        self, call: Call, subscription: Subscription, ids: Sequence[str], settle: Callable[[AckIds], Awaitable[None]]
    ) -> None:
        """Settle each id for itself; raise `InvalidInput` for one that cannot be read, and then nothing is done."""
        failed = await _failed(_read(ids), settle)
        options = subscription.parallel
        if failed and options is not None and options.enable_exactly_once_delivery:
            raise InvalidAckIds([*map(_text, failed)], ids, names_all=takes_long_errors(call.context))


async def _failed(ids: AckIds, settle: Callable[[AckIds], Awaitable[None]]) -> Sequence[AckId]:
    """Settle ids; return those that count no more, or never did: the others are done."""
    failed: list[AckId] = []
    while ids:
        try:
            await settle(ids)
            break
        except LateIds as late:
            return [*failed, *late.ids]
        except NeverGiven as error:  # nothing is done
            failed += error.ids
            ids = without(ids, error.ids)
    return failed


def _read(ids: Sequence[str]) -> AckIds:
    if any(each.startswith("0") and not each.startswith("0-") for each in ids):  # another spelling of an id
        raise InvalidInput(BAD_ID)
    try:
        found = ack_ids_of("", ids)
        for hand_out in found:
            read_hand_out(hand_out)
    except InvalidInput:
        raise InvalidInput(BAD_ID) from None
    return found


def _text(ack_id: AckId) -> str:
    return f"{ack_id.offset}-{ack_id.hand_out}"


def takes_long_errors(context: Context) -> bool:
    """Whether a client takes an error that names very many ids.

    Google's libraries do on the connections that they make by TLS themselves. Plain ones take 8 KiB mostly. The library
    for Java has to be told of all in any case: for it what an error does not name is done.
    """
    is_tls = b"ssl" in context.auth_context().get("transport_security_type", ())
    agents = [str(value) for name, value in context.invocation_metadata() or () if name in _AGENTS]
    return is_tls or any(_JAVA in each for each in agents)


class LeasingRpcs:
    """Methods of the service Subscriber for single consumers' calls."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    def rpcs(self) -> list[Rpc]:
        """Return the methods."""
        return [
            Rpc("Pull", protos.PullRequest, "subscriptions:pull", _subscription, self.pull),
            Rpc("Acknowledge", protos.AcknowledgeRequest, "subscriptions:acknowledge", _subscription, self.acknowledge),
            Rpc(
                "ModifyAckDeadline",
                protos.ModifyAckDeadlineRequest,
                "subscriptions:acknowledge",
                _subscription,
                self.modify_deadline,
            ),
        ]

    async def pull(self, call: Call, request: Message) -> Message:
        """Lease messages; without `return_immediately` wait a while for a first one."""
        if request.max_messages <= 0:
            raise InvalidInput("You have passed an invalid argument to the service (argument=max_messages).")
        subscription = await self._leases.subscription(call)
        working, deliverer = self._leases.working, self._leases.deliverer
        most, holder = min(request.max_messages, MOST_PULLED), holder_of(call.caller)
        until = asyncio.get_running_loop().time() + deliverer.wait_seconds
        waits = not request.return_immediately
        while True:
            lots = await working.puller.pull(
                subscription, most, project=call.project, holder=holder, held_for=call.project, wait=waits,
                max_bytes=PART,
            )  # fmt: skip
            if lots or not waits or not await working.puller.wait(subscription, call.project, holder, until):
                break
            subscription = await self._leases.subscription(call._replace(caller=await call.again()))
        options = subscription.parallel
        counts = options is not None and options.dead_letter_policy is not None
        return protos.PullResponse(received_messages=messages.received(lots, with_attempt=counts))

    async def acknowledge(self, call: Call, request: Message) -> Message:
        """Acknowledge messages, each for itself; durable when this returns."""
        check_ids(request, request.ack_ids)
        subscription = await self._leases.subscription(call)
        await self._leases.acknowledge(call, subscription, request.ack_ids)
        return protos.Empty()

    async def modify_deadline(self, call: Call, request: Message) -> Message:
        """Let leases end at another time, or give messages back."""
        check_seconds(request.ack_deadline_seconds)
        check_ids(request, request.ack_ids)
        subscription = await self._leases.subscription(call)
        await self._leases.extend(call, subscription, request.ack_ids, request.ack_deadline_seconds)
        return protos.Empty()


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
    if request.ByteSize() > MOST_ID_BYTES:
        raise InvalidInput(f"The request is too large: at most {MOST_ID_BYTES} bytes of ack IDs are allowed.")


def _subscription(request: Message) -> Name:
    return names.read(request.subscription, SUBSCRIPTIONS)
