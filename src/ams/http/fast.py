"""The gate every request passes, and the hot routes behind it: publish, pull and acknowledge, on raw ASGI.

These three take nine tenths of all requests, and a framework's routing and request objects would cost more than all the
work behind them (`docs/decisions/`). A request passes: gate -> use case -> engine, and back. The gate checks names,
token, project and roles, in the order of contract 1.5, then the rate.

A request that was let in is remembered by its head, if the connection offers that. While nothing changes that it stands
on, the next one with the same head may go from the connection to the use case without all this (`ams.http.lane`).
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from ams.access.admission import Admission, Caller, bearer_of
from ams.access.rates import ConnectionSlots, QuotaSlots, Rates
from ams.core.ack_ids import AckIds
from ams.core.errors import NotAuthenticated, OwnedElsewhere
from ams.core.names import (
    ProjectName,
    SubscriptionName,
    TopicName,
    UserId,
    ack_prefix,
    checked_name,
    checked_resource_name,
)
from ams.http import messages
from ams.http.asgi import Receive, query_value
from ams.http.bodies import BIG_BODY
from ams.http.forwarding import Answer, Forwarder, Relayed
from ams.http.limits import LATE_SECONDS, SMALL_BODY, Bodies, Holders, gone
from ams.service.delivering import Deliverer, Gone
from ams.service.parallel.settling import holder_of
from ams.service.parallel.working import Working
from ams.service.publishing import Publisher
from ams.storage.database.invalidation import Cache, Invalidations
from ams.storage.registry.records import AttachedSchema, Subscription, Topic
from ams.web.asgi_exchange import CONNECTION
from ams.web.connection import HttpConnection
from ams.wire.actions import takes_google_names
from ams.workers import Pool

CREATE_PROJECT = "projects:create"  # the one action whose project need not exist
OFFERED, COUNTED = "ams.head", "ams.counted"
"""Members of the state of an ASGI scope: the head by which the connection would know such a request again, and whether
it was counted for its rate before."""


class Gate:
    """Lets requests in."""

    def __init__(
        self,
        admission: Admission,
        auth_option: str,
        rates: Rates | None = None,
        connections: ConnectionSlots | None = None,
    ) -> None:
        """`connections` says how many connections a project may have; absent: any number."""
        self._admission, self._connections, self._rates = admission, connections, rates
        self._reads_header = auth_option in ("both", "header")
        self._reads_query = auth_option in ("both", "key")

    def token(self, headers: list[tuple[bytes, bytes]], query: bytes) -> str | None:
        """Return the token of a request: that of the x-api-key header, else a `Bearer` of the Authorization header,
        else the query parameter `key` (contract 3.1; RFC 6750, 2.1).
        """
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
        self,
        action: str,
        names: Mapping[str, str],
        headers: list[tuple[bytes, bytes]],
        query: bytes,
        *,
        counted: bool = False,
    ) -> Caller:
        """Check the request's names in alphabetical order of their variables, then its user (contract 1.5).

        Raises `RateLimited` last, so that only requests which are let in count; one that is `counted` already does not
        count again.
        """
        check_names(action, names)
        caller = await self.admit_again(action, names, headers, query)
        if not counted:
            self.count_request(caller)
        return caller

    def count_request(self, caller: Caller) -> None:
        """Count a request that is let in; raise `RateLimited`, and count nothing, when there are too many."""
        rates = self._rates
        if rates is not None and (rates.is_usual or (caller.project is not None and caller.project.quotas)):
            rates.count(caller)

    def count_connection(self, connection: HttpConnection, caller: Caller) -> None:
        """Count a connection for the project of a request that is let in; raise `QuotaExceeded`, and count nothing."""
        if self._connections is not None and caller.project is not None and not connection.is_lost:
            connection.slot = self._connections.move(connection.slot, caller.project)

    async def admit_from(self, scope: Mapping[str, Any], action: str, names: Mapping[str, str]) -> Caller:
        """Admit a request over ASGI, and count it and its connection."""
        state = scope.get("state") or {}
        headers, query = scope["headers"], scope["query_string"]
        caller = await self.admit(action, names, headers, query, counted=COUNTED in state)
        if CONNECTION in state:
            self.count_connection(state[CONNECTION], caller)
        return caller

    def is_still(self, caller: Caller, token: str) -> bool:
        """Return whether a token that let a caller in does so still. Notes the use of a named token."""
        return caller.login is None or self._admission.is_still(token, caller.login)

    async def admit_again(
        self, action: str, names: Mapping[str, str], headers: list[tuple[bytes, bytes]], query: bytes
    ) -> Caller:
        """Look at the user once more, after a while: a token may be dead by now. Its rate counts the request once."""
        project = names.get("project") if action != CREATE_PROJECT else None
        return await self._admission.admit(
            action, self.token(headers, query), ProjectName(project) if project is not None else None, names
        )

    async def name(self, headers: list[tuple[bytes, bytes]], query: bytes) -> str | None:
        """Return the name of the user whose token it is, whatever its roles; None for no known user."""
        return await self._admission.name_of(self.token(headers, query))

    def known(self, headers: list[tuple[bytes, bytes]], query: bytes) -> str | None:
        """Return what `who` would return, if that takes no waiting; None says nothing. Raises `TokenRefused`."""
        token = self.token(headers, query)
        return self._admission.known_user(token) if token else None

    async def who(self, headers: list[tuple[bytes, bytes]], query: bytes) -> str:
        """Return the id of the user of a request, whatever its rights; empty for the service token.

        Raises `NotAuthenticated` without a token, `UnknownToken` for one that no user has.
        """
        token = self.token(headers, query)
        if not token:
            raise NotAuthenticated
        principal = await self._admission.principal(token)
        return principal.id if principal else ""

    async def know(self, headers: list[tuple[bytes, bytes]], query: bytes) -> None:
        """Count a request of a user, whatever its rights; raise as `who`, and `RateLimited`."""
        user = await self.who(headers, query)
        if user and self._rates is not None:
            self._rates.count_user(UserId(user))

    async def count(self, token: str | None) -> None:
        """Count a request of a user to an open route; raise `RateLimited`, and `UnknownToken` for a bad token."""
        if self._rates is None:
            return
        user = await self._admission.principal(token)
        if user is not None:
            self._rates.count_user(user.id)


def check_names(action: str, names: Mapping[str, str]) -> None:
    """Raise `InvalidInput` "Invalid VARIABLE name" for the first bad one in alphabetical order.

    What is made here has a name of AMS; what is there may have one that only clients of Google's give.
    """
    for variable in sorted(names):
        (checked_resource_name if takes_google_names(action, variable) else checked_name)(variable, names[variable])


_UNCLEAN = ("", ".", "..")  # parts of a path that leads to a clean one (contract 1.3), which is not found here


class Call(NamedTuple):
    """One request on a hot route."""

    action: str
    names: Mapping[str, str]
    name: str  # the topic's or subscription's
    caller: Caller
    generation: int  # of what is known of callers, topics and subscriptions, before it was looked at
    scope: dict[str, Any]
    receive: Receive

    @property
    def project(self) -> str:
        """The name of the project in the path."""
        return self.names["project"]

    @property
    def holders(self) -> Holders:
        """Whose memory the body takes."""
        return self.project, self.caller.user


Act = Callable[[bytes, str | None], Coroutine[Any, Any, bytes]]
"""The work on a body: from the body to that of a 200. It raises `NotOnLane` instead of waiting for a message."""
Head = tuple[Any, ...]  # the target and the header fields of a request, but for those that differ from one to the next


class NotOnLane(Exception):
    """A request is not for the lane after all, and nothing was done for it.

    A pull found nothing, and its client waits for a message; it takes long to find out whether a schema allows the
    messages; or what was known of the head does not hold any more.
    """


class Admitted(NamedTuple):
    """Knowledge about requests with one head, as long as the generation is the same."""

    generation: int
    caller: Caller
    token: str
    holders: Holders
    most: int  # bytes of a body
    path: str
    act: Act
    waits_once: bool  # whether what is done with a body waits for one thing at most, its being stored
    weight: int  # bytes that remembering this takes, about


REMEMBERED_HEADS = 64 * 2**20  # bytes of heads that are remembered, together with what is known of them
_ADMITTED_BYTES = 1536  # bytes of what is known of a head, about
_FIELD_BYTES = 140  # of a header field beside its name and its value, about: three objects of Python
_LONGEST_HEAD = 4096  # bytes; a longer head is not remembered


class FastRoutes:
    """Answers the three hot routes."""

    def __init__(
        self,
        gate: Gate,
        bodies: Bodies,
        publisher: Publisher,
        deliverer: Deliverer,
        working: Working,
        invalidations: Invalidations,
        waiting_pulls: QuotaSlots,
        *,
        strict: bool,
        workers: Pool | None = None,
        forwarder: Forwarder | None = None,
    ) -> None:
        """`strict` refuses data that is not base64. `forwarder` is needed where other nodes work on parallel
        subscriptions.
        """
        self._waiting_pulls, self.gate, self.bodies, self._publisher = waiting_pulls, gate, bodies, publisher
        self._deliverer = deliverer
        self._puller, self._settler = working.puller, working.settler
        self._forwarder, self._invalidations, self._strict = forwarder, invalidations, strict
        self._messages = messages.MessageReader(workers)
        self._routes: dict[tuple[str, str], tuple[str, str, Callable[[Call], Awaitable[bytes]]]] = {
            ("topics", "publish"): ("topic", "topics:publish", self._publish),
            ("subscriptions", "pull"): ("subscription", "subscriptions:pull", self._pull),
            ("subscriptions", "acknowledge"): ("subscription", "subscriptions:acknowledge", self._acknowledge),
        }
        self._heads: Cache[Head, Admitted] = invalidations.new_cache(REMEMBERED_HEADS, attrgetter("weight"))

    def answer(self, scope: dict[str, Any], receive: Receive) -> Awaitable[bytes] | None:
        """Return the coming body of a 200 if this is a hot route, None if it is not."""
        if scope["method"] != "POST":
            return None
        parts = scope["path"].split("/")
        if len(parts) != 6 or parts[1] != "v1" or parts[2] != "projects" or parts[3] in _UNCLEAN:
            return None
        name, colon, verb = parts[5].rpartition(":")
        route = self._routes.get((parts[4], verb))
        if route is None or not name or not colon:
            return None
        return self._run(route, parts[3], name, scope, receive)

    def known(self, head: Head) -> Admitted | None:
        """Return what is known of requests with this head; None when they have to be looked at.

        To be followed by `is_still` before anything is done: until the body is there, rights may change.
        """
        found = self._heads.known(head)
        return found if found is not None and found.generation == self._invalidations.generation else None

    def is_still(self, admitted: Admitted) -> bool:
        """Return whether such a request would be let in now; raises `TokenRefused` when its token has expired."""
        if admitted.generation != self._invalidations.generation or not self._invalidations.trusted:
            return False
        return self.gate.is_still(admitted.caller, admitted.token)

    async def _run(
        self,
        route: tuple[str, str, Callable[[Call], Awaitable[bytes]]],
        project: str,
        name: str,
        scope: dict[str, Any],
        receive: Receive,
    ) -> bytes:
        variable, action, handler = route
        names = {"project": project, variable: name}
        generation = self._invalidations.generation
        caller = await self.gate.admit_from(scope, action, names)
        return await handler(Call(action, names, name, caller, generation, scope, receive))

    def _remember(self, call: Call, act: Act, *, is_pull: bool = False, waits_once: bool = True) -> None:
        """Remember a request that was let in, if its connection offers a head by which to know the next one."""
        scope = call.scope
        head: Head | None = (scope.get("state") or {}).get(OFFERED)
        if head is None:
            return
        token = self.gate.token(scope["headers"], scope["query_string"])
        size = len(head[0]) + sum(len(name) + len(value) for name, value in head[1:])
        if token is None or size > _LONGEST_HEAD:
            return
        most = SMALL_BODY if is_pull else self.bodies.most
        weight = size + len(head) * _FIELD_BYTES + _ADMITTED_BYTES
        admitted = Admitted(
            call.generation, call.caller, token, call.holders, most, scope["path"], act, waits_once and not is_pull,
            weight,
        )  # fmt: skip
        self._heads.put(head, admitted)

    async def _admitted_again(self, call: Call) -> Caller:
        return await self.gate.admit_again(call.action, call.names, call.scope["headers"], call.scope["query_string"])

    async def _publish(self, call: Call) -> bytes:
        """Store messages at the end of a topic, all or none."""
        headers, name = call.scope["headers"], TopicName(call.name)
        topic = await self._publisher.topic(call.caller, name)
        key = messages.idempotency_key(headers)
        began = time.monotonic()
        body = await self.bodies.read(headers, call.receive, None, call.holders)
        if time.monotonic() - began > LATE_SECONDS:
            topic = await self._publisher.topic(await self._admitted_again(call), name)
        here = call.caller.here
        is_strict = self._strict if here.strict_data is None else here.strict_data
        # A topic's schema refuses data that is not base64 itself, with its own text (contract 15.3).
        act = partial(self._store, topic, call.project, not is_strict or topic.schema is not None)
        self._remember(call, act if topic.schema is None else partial(self._store_allowed, topic, topic.schema))
        with self.bodies.held(body, call.holders):
            return await act(body, key)

    async def _store_allowed(self, topic: Topic, schema: AttachedSchema, body: bytes, key: str | None) -> bytes:
        """Store messages that the topic's schema is soon found to allow; raise `NotOnLane` for any other body."""
        received = self._messages.read_small(body, lenient=True)
        if not self._publisher.validators.allow_now(schema, received):
            raise NotOnLane
        appended = await self._publisher.publish(topic, received, key=key, is_allowed=True)
        return messages.published(appended.first, appended.count)

    async def _store(self, topic: Topic, project: str, is_lenient: bool, body: bytes, key: str | None) -> bytes:
        if len(body) <= BIG_BODY:
            received = self._messages.read_small(body, lenient=is_lenient)
        else:
            received = await self._messages.read(body, lenient=is_lenient, project=project)
        appended = await self._publisher.publish(topic, received, key=key, project=project)
        return messages.published(appended.first, appended.count)

    async def _pull(self, call: Call) -> bytes:
        """Hand out messages from where the subscription stands."""
        subscription = await self._deliverer.to_pull(call.caller, SubscriptionName(call.name))
        began = time.monotonic()
        body = await self.bodies.read(call.scope["headers"], call.receive, SMALL_BODY)
        if time.monotonic() - began > LATE_SECONDS:
            subscription = await self._to_pull_again(call)
        act = partial(self._give, subscription, call.project, call.caller)
        self._remember(call, act, is_pull=True)
        if subscription.parallel is None or self._forwarder is None:
            return await self._pulled(call, subscription, body)
        pulled, left = partial(self._pulled, call, subscription, body), partial(gone, call.receive)
        most = self._deliverer.max_bytes
        return _unless_refused(await self._forwarder.run(pulled, call.scope, lambda: body, left, most=most))

    async def _pulled(self, call: Call, subscription: Subscription, body: bytes) -> bytes:
        try:
            return await self._give(subscription, call.project, call.caller, body)
        except NotOnLane:
            return await self._pull_later(call, subscription, body)

    def _give(
        self, subscription: Subscription, project: str, caller: Caller, body: bytes, _key: str | None = None
    ) -> Coroutine[Any, Any, bytes]:
        """Answer messages that are there; raise `NotOnLane` when there are none and the client waits for some."""
        if subscription.parallel is None:
            return self._hand_out(subscription, project, body)
        return self._lease(subscription, project, caller, body)

    async def _hand_out(self, subscription: Subscription, project: str, body: bytes) -> bytes:
        wanted, wait = messages.pull_request(body)
        stored = await self._deliverer.pull(subscription, wanted, wait=wait, project=project)
        if wait and not stored:
            raise NotOnLane
        return messages.pulled(ack_prefix(project, subscription.name), stored)

    async def _lease(self, subscription: Subscription, project: str, caller: Caller, body: bytes) -> bytes:
        wanted, wait = messages.pull_request(body)
        lots = await self._puller.pull(
            subscription, wanted, project=ProjectName(project), holder=holder_of(caller), held_for=project, wait=wait
        )
        if wait and not lots:
            raise NotOnLane
        return messages.leased(ack_prefix(project, subscription.name), lots)

    async def _pull_later(self, call: Call, subscription: Subscription, body: bytes) -> bytes:
        """Wait until there is something, or the time is over or the client has left; look at rights after each wait."""
        until = asyncio.get_running_loop().time() + self._deliverer.wait_seconds
        with self._waiting_pulls.taken(call.caller.here):
            left = gone(call.receive)
            try:
                while await self._wait(call, subscription, until, left):
                    subscription = await self._to_pull_again(call)
                    with contextlib.suppress(NotOnLane):
                        return await self._give(subscription, call.project, call.caller, body)
            except OwnedElsewhere:  # since it waits: its time is too short to begin anew there
                pass
            finally:
                left.cancel()
        return messages.pulled("", ())

    async def _wait(self, call: Call, subscription: Subscription, until: float, left: Gone) -> bool:
        if subscription.parallel is None:
            return await self._deliverer.wait(subscription, until, left)
        return await self._puller.wait(subscription, ProjectName(call.project), holder_of(call.caller), until, left)

    async def _to_pull_again(self, call: Call) -> Subscription:
        return await self._deliverer.to_pull(await self._admitted_again(call), SubscriptionName(call.name))

    async def _acknowledge(self, call: Call) -> bytes:
        """Acknowledge everything up to the largest id; of a parallel subscription, each id."""
        caller = call.caller
        began = time.monotonic()
        body = await self.bodies.read(call.scope["headers"], call.receive, None, call.holders)
        if time.monotonic() - began > LATE_SECONDS:
            caller = await self._admitted_again(call)
        prefix = ack_prefix(call.project, call.name)
        with self.bodies.held(body, call.holders):
            if await self._deliverer.is_parallel(caller, SubscriptionName(call.name)):
                each = await self._messages.each_ack_id(prefix, body)
                subscription = await self._deliverer.to_acknowledge(caller, SubscriptionName(call.name))
                act = partial(self._take_each, subscription, call.project, prefix)
                self._remember(call, act, waits_once=self._forwarder is None)
                take = partial(self._take_each_id, subscription, call.project, each)
                if self._forwarder is None:
                    return await take()
                return _unless_refused(await self._forwarder.run(take, call.scope, lambda: body))
            ids = await self._messages.ack_ids(prefix, body, project=call.project)
            subscription = await self._deliverer.to_acknowledge(caller, SubscriptionName(call.name))
            self._remember(call, partial(self._take, subscription, prefix))
            return await self._take_ids(subscription, prefix, ids)

    def _take(
        self, subscription: Subscription, prefix: str, body: bytes, _key: str | None
    ) -> Coroutine[Any, Any, bytes]:
        return self._take_ids(subscription, prefix, messages.ack_ids(body))

    async def _take_ids(self, subscription: Subscription, prefix: str, ids: list[str] | None) -> bytes:
        await self._deliverer.acknowledge(subscription, messages.ack_numbers(prefix, ids))
        return b"{}"

    def _take_each(
        self, subscription: Subscription, project: str, prefix: str, body: bytes, _key: str | None
    ) -> Coroutine[Any, Any, bytes]:
        return self._take_each_id(subscription, project, messages.each_ack_id(prefix, body))

    async def _take_each_id(self, subscription: Subscription, project: str, ids: AckIds) -> bytes:
        await self._settler.acknowledge(subscription, ProjectName(project), ids)
        return b"{}"


def _unless_refused(answer: bytes | Answer) -> bytes:
    """Return the body of a 200, here or of another node; raise `Relayed` for what another node answered otherwise."""
    if isinstance(answer, bytes):
        return answer
    if answer.status != 200:
        raise Relayed(answer)
    return answer.body
