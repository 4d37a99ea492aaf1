"""The gate of all requests, and the hot routes behind it: publish, pull and acknowledge, on raw ASGI.

A request passes: gate -> use case -> engine, and back. The gate checks names, token, project and roles, in the order of
contract 1.5, then the rate. An admitted request is remembered by its head, if the connection offers that: the next one
with the same head may go straight to the use case, while the underlying data is unchanged (decision 0033).
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from ams.access.admission import Admission, Caller, bearer_of
from ams.access.rates import QuotaSlots, Rates
from ams.core.errors import AmsError, NotAuthenticated, OwnedElsewhere
from ams.core.names import ProjectName, SubscriptionName, TopicName, ack_prefix, checked_name, checked_resource_name
from ams.http import messages
from ams.http.asgi import Header, Receive, query_value
from ams.http.bodies import BIG_BODY
from ams.http.forwarding import Forwarder
from ams.http.limits import RECHECK_AFTER_SECONDS, Bodies, Holders, watch_disconnect
from ams.service.delivery import Deliverer, Gone
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.parallel.settlement import holder_of
from ams.service.publishing import Publisher
from ams.storage.database.invalidation import Cache, Invalidations
from ams.storage.registry.records import AttachedSchema, Subscription, Topic
from ams.web.asgi_exchange import CONNECTION
from ams.web.connection import HttpConnection
from ams.wire.actions import SMALL_BODY, takes_google_names
from ams.workers.pool import Pool

HEAD_KEY, COUNTED_KEY = "ams.head", "ams.counted"
"""Members of the state of an ASGI scope: the cache key of a request's head, and True if the request has been counted
for its rate."""


class RequestGate:
    """Admits requests."""

    def __init__(self, admission: Admission, auth_option: str, rates: Rates, connections: QuotaSlots) -> None:
        self._admission, self._connections, self._rates = admission, connections, rates
        self._reads_header = auth_option in ("both", "header")
        self._reads_query = auth_option in ("both", "key")

    def token(self, headers: list[Header], query: bytes) -> str | None:
        """Return the token: `x-api-key`, else `Bearer`, else the parameter `key` (contract 3.1; RFC 6750, 2.1)."""
        if self._reads_header:
            authorization = b""
            for name, value in headers:
                if name == b"x-api-key" and value:
                    return value.decode("latin-1")
                if name == b"authorization" and not authorization:
                    authorization = value
            if authorization and (bearer := bearer_of(authorization)) is not None:
                return bearer
        return (query_value(query, "key") or None) if self._reads_query else None

    async def admit(
        self, action: str, names: Mapping[str, str], headers: list[Header], query: bytes, *, counted: bool = False
    ) -> Caller:
        """Check the names of a request in alphabetical order of their variables, then its user (contract 1.5).

        New resources need an AMS name; existing ones may have a name that only Google's clients can give. Raises
        `RateLimited` last, so that only admitted requests count; one already `counted` does not count again.
        """
        for variable in sorted(names):
            check = checked_resource_name if takes_google_names(action, variable) else checked_name
            check(variable, names[variable])
        caller = await self.admit_again(action, names, headers, query)
        if not counted:
            self.count_request(caller)
        return caller

    def count_request(self, caller: Caller) -> None:
        """Count an admitted request. Raises `RateLimited` and counts nothing above the limit."""
        if self._rates.is_usual or (caller.project is not None and caller.project.quotas):
            self._rates.count(caller.user or "", caller.project)

    def count_connection(self, connection: HttpConnection, caller: Caller) -> None:
        """Count a connection for the project of an admitted request. Raises `QuotaExceeded` and counts nothing."""
        if caller.project is not None and not connection.is_lost:
            connection.slot = self._connections.move(connection.slot, caller.project)

    async def admit_from(self, scope: Mapping[str, Any], action: str, names: Mapping[str, str]) -> Caller:
        """Admit a request over ASGI, and count it and its connection."""
        state = scope.get("state") or {}
        headers, query = scope["headers"], scope["query_string"]
        caller = await self.admit(action, names, headers, query, counted=COUNTED_KEY in state)
        if CONNECTION in state:
            self.count_connection(state[CONNECTION], caller)
        return caller

    def is_still(self, caller: Caller, token: str) -> bool:
        """Return whether a token still admits this caller. Notes the use of a named token."""
        return caller.login is None or self._admission.is_still(token, caller.login)

    async def admit_again(self, action: str, names: Mapping[str, str], headers: list[Header], query: bytes) -> Caller:
        """Admit the user again after a wait, because the token may be invalid by now. Does not count the rate again."""
        project = names.get("project")
        place = None if project is None else ProjectName(project)
        return await self._admission.admit(action, self.token(headers, query), place, names)

    async def name(self, headers: list[Header], query: bytes) -> str:
        """Return the name of the token's user, with any roles; empty if it is not known, or the registry is down."""
        with contextlib.suppress(AmsError):
            principal = await self._admission.user_of(self.token(headers, query))
            return principal.name if principal else ""
        return ""

    def cached_caller(self, headers: list[Header], query: bytes) -> str | None:
        """Return the cached result of `who`, or None if it is not cached. Raises `TokenRefused`."""
        token = self.token(headers, query)
        return self._admission.known_user(token) if token else None

    async def who(self, headers: list[Header], query: bytes) -> str:
        """Return the user id of a token; empty: the service token. Raises `NotAuthenticated`, `UnknownToken`."""
        token = self.token(headers, query)
        if not token:
            raise NotAuthenticated
        principal = await self._admission.principal(token)
        return principal.id if principal else ""

    async def know(self, headers: list[Header], query: bytes) -> None:
        """Count a request of a user with any rights. Raises as `who`, and `RateLimited`."""
        user = await self.who(headers, query)
        if user:
            self._rates.count(user, None)

    async def count(self, token: str | None) -> None:
        """Count a user's request to an open route. Raises `RateLimited`, and `UnknownToken` for a bad token."""
        user = await self._admission.principal(token)
        if user is not None:
            self._rates.count(user.id, None)


class HotCall(NamedTuple):
    """One request on a hot route."""

    action: str
    names: Mapping[str, str]
    name: str  # of the topic or subscription
    caller: Caller
    generation: int  # of the caches of callers, topics and subscriptions, read before them
    scope: dict[str, Any]
    receive: Receive

    @property
    def project(self) -> str:
        """Name of the project in the path."""
        return self.names["project"]

    @property
    def holders(self) -> Holders:
        """Holders of the body's memory."""
        return self.project, self.caller.user


Work = Coroutine[Any, Any, bytes]
Act = Callable[[bytes, str | None], Work]
"""Handles a body and returns the body of the 200. Raises `NotOnLane` instead of waiting for a message."""
Head = tuple[Any, ...]  # target and header fields of a request, without those that differ each time


class NotOnLane(Exception):
    """A request is not for the lane after all; nothing was done for it.

    Causes: a pull must wait for messages, a schema check is slow, or the cached data of the head is out of date.
    """


class Admitted(NamedTuple):
    """Cached data for requests with one head, valid while the generation is the same."""

    generation: int
    caller: Caller
    token: str
    holders: Holders
    most: int  # bytes of a body
    path: str
    act: Act
    waits_once: bool  # True: the work waits at most once, for the write
    weight: int  # approximate bytes of memory of this entry


HEAD_CACHE_BYTES = 64 * 2**20  # bytes of cached heads, with their data
_ADMITTED_BYTES = 1536  # approximate bytes of the data for a head
_FIELD_BYTES = 140  # approximate bytes of a header field, without name and value: three Python objects
_MAX_CACHED_HEAD_BYTES = 4096  # bytes; a longer head is not cached


class FastRoutes:
    """Answers the three hot routes."""

    def __init__(
        self, gate: RequestGate, bodies: Bodies, publisher: Publisher, deliverer: Deliverer,
        working: ParallelSubscriptions, invalidations: Invalidations, waiting_pulls: QuotaSlots, *, strict: bool,
        workers: Pool, forwarder: Forwarder | None,
    ) -> None:  # fmt: skip
        """`strict` refuses data that is not base64; `forwarder` is for parallel subscriptions of other nodes."""
        self._waiting_pulls, self.gate, self.bodies, self._publisher = waiting_pulls, gate, bodies, publisher
        self._deliverer = deliverer
        self._puller, self._settler = working.puller, working.settler
        self._forwarder, self._invalidations, self._strict = forwarder, invalidations, strict
        self._messages = messages.MessageReader(workers)
        self._handlers: dict[str, Callable[[HotCall], Awaitable[bytes]]] = {
            "topics:publish": self._publish,
            "subscriptions:pull": self._pull,
            "subscriptions:acknowledge": self._acknowledge,
        }
        self._heads: Cache[Head, Admitted] = invalidations.new_cache(HEAD_CACHE_BYTES, attrgetter("weight"))

    def answer(self, scope: dict[str, Any], receive: Receive) -> Awaitable[bytes] | None:
        """Return an awaitable of a 200's body for a hot route, None for others."""
        if scope["method"] != "POST":
            return None
        parts = scope["path"].split("/")
        if len(parts) != 6 or parts[1] != "v1" or parts[2] != "projects" or parts[3] in ("", ".", ".."):
            return None  # the last is of an unclean path (contract 1.3)
        name, _, verb = parts[5].rpartition(":")
        action = f"{parts[4]}:{verb}"
        handler = self._handlers.get(action)
        if handler is None or not name:
            return None
        names = {"project": parts[3], parts[4].removesuffix("s"): name}
        return self._admit(action, handler, names, name, scope, receive)

    def cached_head(self, head: Head) -> Admitted | None:
        """Return the cached data of a head, or None. Rights may change: call `is_still` when the body is complete."""
        found = self._heads.find_cached(head)
        return found if found is not None and found.generation == self._invalidations.generation else None

    def is_still(self, admitted: Admitted) -> bool:
        """Return whether such a request is still admitted. Raises `TokenRefused` if its token has expired."""
        if admitted.generation != self._invalidations.generation or not self._invalidations.validity.holds():
            return False
        return self.gate.is_still(admitted.caller, admitted.token)

    async def _admit(
        self, action: str, handler: Callable[[HotCall], Awaitable[bytes]], names: Mapping[str, str], name: str,
        scope: dict[str, Any], receive: Receive,
    ) -> bytes:  # fmt: skip
        generation = self._invalidations.generation
        caller = await self.gate.admit_from(scope, action, names)
        return await handler(HotCall(action, names, name, caller, generation, scope, receive))

    def _remember(self, call: HotCall, act: Act, *, is_pull: bool = False, waits_once: bool = True) -> None:
        """Cache an admitted request, if its connection offers a head as key."""
        scope = call.scope
        head: Head | None = (scope.get("state") or {}).get(HEAD_KEY)
        if head is None:
            return
        token = self.gate.token(scope["headers"], scope["query_string"])
        size = len(head[0]) + sum(len(name) + len(value) for name, value in head[1:])
        if token is None or size > _MAX_CACHED_HEAD_BYTES:
            return
        most = SMALL_BODY if is_pull else self.bodies.most
        weight = size + len(head) * _FIELD_BYTES + _ADMITTED_BYTES
        admitted = Admitted(
            call.generation, call.caller, token, call.holders, most, scope["path"], act, waits_once and not is_pull,
            weight,
        )  # fmt: skip
        self._heads.put(head, admitted)

    async def _admitted_again(self, call: HotCall) -> Caller:
        return await self.gate.admit_again(call.action, call.names, call.scope["headers"], call.scope["query_string"])

    async def _publish(self, call: HotCall) -> bytes:
        """Store messages at the end of a topic, all or none."""
        headers, name = call.scope["headers"], TopicName(call.name)
        topic = await self._publisher.topic(call.caller, name)
        key = messages.idempotency_key(headers)
        began = time.monotonic()
        body = await self.bodies.read(headers, call.receive, None, call.holders)
        if time.monotonic() - began > RECHECK_AFTER_SECONDS:
            topic = await self._publisher.topic(await self._admitted_again(call), name)
        here = call.caller.here
        is_strict = self._strict if here.strict_data is None else here.strict_data
        # A topic's schema refuses data that is not base64 itself, with its own text (contract 15.3).
        act = partial(self._store, topic, call.project, not is_strict or topic.schema is not None)
        self._remember(call, act if topic.schema is None else partial(self._store_allowed, topic, topic.schema))
        with self.bodies.hold_body(len(body), call.holders):
            return await act(body, key)

    async def _store_allowed(self, topic: Topic, schema: AttachedSchema, body: bytes, key: str | None) -> bytes:
        """Store messages that quick checks of the topic's schema allow. Raises `NotOnLane` for others."""
        received = self._messages.read_small(body, lenient=True)
        if not self._publisher.validators.allow_now(schema, received):
            raise NotOnLane
        appended = await self._publisher.publish(topic, received, key=key, is_allowed=True)
        return messages.encode_published(appended.first, appended.count)

    async def _store(self, topic: Topic, project: str, is_lenient: bool, body: bytes, key: str | None) -> bytes:
        if len(body) <= BIG_BODY:
            received = self._messages.read_small(body, lenient=is_lenient)
        else:
            received = await self._messages.read(body, lenient=is_lenient, project=project)
        appended = await self._publisher.publish(topic, received, key=key, project=project)
        return messages.encode_published(appended.first, appended.count)

    async def _pull(self, call: HotCall) -> bytes:
        subscription = await self._deliverer.to_pull(call.caller, SubscriptionName(call.name))
        began = time.monotonic()
        body = await self.bodies.read(call.scope["headers"], call.receive, SMALL_BODY)
        if time.monotonic() - began > RECHECK_AFTER_SECONDS:
            subscription = await self._to_pull_again(call)
        self._remember(call, partial(self._give, subscription, call.project, call.caller), is_pull=True)
        if subscription.parallel is None or self._forwarder is None:
            return await self._pull_now(call, subscription, body)
        pull_answer, left = partial(self._pull_now, call, subscription, body), partial(watch_disconnect, call.receive)
        most = self._deliverer.max_bytes
        answer = await self._forwarder.run(pull_answer, call.scope, lambda: body, left, most=most)
        return answer if isinstance(answer, bytes) else answer.body

    async def _pull_now(self, call: HotCall, subscription: Subscription, body: bytes) -> bytes:
        try:
            return await self._give(subscription, call.project, call.caller, body)
        except NotOnLane:
            return await self._pull_later(call, subscription, body)

    async def _give(
        self, subscription: Subscription, project: str, caller: Caller, body: bytes, _: str | None = None
    ) -> bytes:
        """Return available messages. Raises `NotOnLane` if there are none and the client waits."""
        wanted, wait = messages.pull_request(body)
        if subscription.parallel is None:
            stored = await self._deliverer.pull(subscription, wanted, wait=wait, project=project)
            if stored or not wait:
                return messages.pull_answer(ack_prefix(project, subscription.name), stored)
        else:
            lots = await self._puller.pull(subscription, wanted, holder=holder_of(caller), held_for=project, wait=wait)
            if lots or not wait:
                return messages.lease_answer(ack_prefix(project, subscription.name), lots)
        raise NotOnLane

    async def _pull_later(self, call: HotCall, subscription: Subscription, body: bytes) -> bytes:
        """Wait for messages, timeout or disconnect; check rights after each wait."""
        until = asyncio.get_running_loop().time() + self._deliverer.wait_seconds
        with self._waiting_pulls.hold(call.caller.here):
            left = watch_disconnect(call.receive)
            try:
                while await self._wait(call, subscription, until, left):
                    subscription = await self._to_pull_again(call)
                    with contextlib.suppress(NotOnLane):
                        return await self._give(subscription, call.project, call.caller, body)
            except OwnedElsewhere:  # the owner changed while it waited: too little time to start again there
                pass
            finally:
                left.cancel()
        return messages.pull_answer("", ())

    async def _wait(self, call: HotCall, subscription: Subscription, until: float, left: Gone) -> bool:
        if subscription.parallel is None:
            return await self._deliverer.wait(subscription, until, left)
        return await self._puller.wait(subscription, holder_of(call.caller), until, left)

    async def _to_pull_again(self, call: HotCall) -> Subscription:
        return await self._deliverer.to_pull(await self._admitted_again(call), SubscriptionName(call.name))

    async def _acknowledge(self, call: HotCall) -> bytes:
        """Acknowledge everything up to the largest id; on a parallel subscription, each id."""
        caller = call.caller
        began = time.monotonic()
        body = await self.bodies.read(call.scope["headers"], call.receive, None, call.holders)
        if time.monotonic() - began > RECHECK_AFTER_SECONDS:
            caller = await self._admitted_again(call)
        prefix = ack_prefix(call.project, call.name)
        with self.bodies.hold_body(len(body), call.holders):
            if await self._deliverer.is_parallel(caller, SubscriptionName(call.name)):
                each = await self._messages.each_ack_id(prefix, body)
                subscription = await self._deliverer.to_acknowledge(caller, SubscriptionName(call.name))
                act = partial(self._take_each, subscription, prefix)
                self._remember(call, act, waits_once=self._forwarder is None)
                acknowledge = partial(self._settler.acknowledge, subscription, each)
                if self._forwarder is None:
                    await acknowledge()
                    return b"{}"
                answer = await self._forwarder.run(acknowledge, call.scope, lambda: body)
                return b"{}" if answer is None else answer.body
            ids = await self._messages.ack_ids(prefix, body, project=call.project)
            subscription = await self._deliverer.to_acknowledge(caller, SubscriptionName(call.name))
            self._remember(call, partial(self._take, subscription, prefix))
            await self._deliverer.acknowledge(subscription, messages.ack_numbers(prefix, ids))
            return b"{}"

    async def _take(self, subscription: Subscription, prefix: str, body: bytes, _: str | None) -> bytes:
        await self._deliverer.acknowledge(subscription, messages.ack_numbers(prefix, messages.ack_ids(body)))
        return b"{}"

    async def _take_each(self, subscription: Subscription, prefix: str, body: bytes, _: str | None) -> bytes:
        await self._settler.acknowledge(subscription, messages.each_ack_id(prefix, body))
        return b"{}"
