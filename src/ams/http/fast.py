"""The hot routes: publish, pull and acknowledge, on raw ASGI.

They take nine tenths of all requests, and a framework's routing and request objects would cost more than all the work
behind them (`docs/decisions/`). A request passes: gate -> use case -> engine, and back.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ams.access.admission import Caller
from ams.core.messages import Stored
from ams.core.names import SubscriptionName, TopicName, ack_prefix
from ams.http import messages
from ams.http.asgi import Receive
from ams.http.gate import Gate
from ams.http.limits import LATE_SECONDS, SMALL_BODY, Bodies, gone
from ams.http.routes.answers import Nothing
from ams.http.routing import Operation
from ams.service.delivering import Deliverer
from ams.service.publishing import Publisher
from ams.storage.registry.records import Subscription

_UNCLEAN = ("", ".", "..")
"""Parts of a path that leads to a clean one (contract 1.3), which is not found here."""


_TOPIC, _SUBSCRIPTION = "/projects/{project}/topics/{topic}", "/projects/{project}/subscriptions/{subscription}"

OPERATIONS = (
    Operation(
        "POST",
        _TOPIC + ":publish",
        "topics:publish",
        "Store messages at the end of a topic, all or none",
        messages.PublishBody,
        messages.Published,
        ("Idempotency-Key",),
    ),
    Operation(
        "POST",
        _SUBSCRIPTION + ":pull",
        "subscriptions:pull",
        "Hand out messages from where the subscription stands",
        messages.PullBody,
        messages.Received,
    ),
    Operation(
        "POST",
        _SUBSCRIPTION + ":acknowledge",
        "subscriptions:acknowledge",
        "Acknowledge everything up to the largest id",
        messages.AckBody,
        Nothing,
    ),
)
"""The hot routes, for the description of the API."""


class Call(NamedTuple):
    """One request on a hot route."""

    action: str
    names: Mapping[str, str]
    name: str
    """Of the topic or subscription."""
    caller: Caller
    scope: dict[str, Any]
    receive: Receive


class FastRoutes:
    """Answers the three hot routes."""

    def __init__(
        self, gate: Gate, bodies: Bodies, publisher: Publisher, deliverer: Deliverer, *, lenient: bool
    ) -> None:
        self._gate = gate
        self._bodies = bodies
        self._publisher = publisher
        self._deliverer = deliverer
        self._messages = messages.MessageReader(lenient)
        self._routes: dict[tuple[str, str], tuple[str, str, Callable[[Call], Awaitable[bytes]]]] = {
            ("topics", "publish"): ("topic", "topics:publish", self._publish),
            ("subscriptions", "pull"): ("subscription", "subscriptions:pull", self._pull),
            ("subscriptions", "acknowledge"): ("subscription", "subscriptions:acknowledge", self._acknowledge),
        }

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
        caller = await self._gate.admit(action, names, scope["headers"], scope["query_string"])
        return await handler(Call(action, names, name, caller, scope, receive))

    async def _admitted_again(self, call: Call) -> Caller:
        """Return who sent a request, after a while in which the rights to it may have changed."""
        return await self._gate.admit_again(call.action, call.names, call.scope["headers"], call.scope["query_string"])

    async def _publish(self, call: Call) -> bytes:
        headers, name = call.scope["headers"], TopicName(call.name)
        topic = await self._publisher.topic(call.caller, name)
        key = messages.idempotency_key(headers)
        holders = (call.names["project"], call.caller.user)
        began = time.monotonic()
        body = await self._bodies.read(headers, call.receive, None, holders)
        if time.monotonic() - began > LATE_SECONDS:
            topic = await self._publisher.topic(await self._admitted_again(call), name)
        with self._bodies.held(body, holders):
            received = await self._messages.read(body, lenient=topic.schema is not None)
            appended = await self._publisher.publish(topic, received, key=key)
        return messages.published(appended.first, appended.count)

    async def _pull(self, call: Call) -> bytes:
        project = call.names["project"]
        subscription = await self._deliverer.to_pull(call.caller, SubscriptionName(call.name))
        began = time.monotonic()
        body = await self._bodies.read(call.scope["headers"], call.receive, SMALL_BODY)
        if time.monotonic() - began > LATE_SECONDS:
            subscription = await self._to_pull_again(call)
        wanted, wait = messages.pull_request(body)
        stored = await self._deliverer.pull(subscription, wanted, wait=wait, project=project)
        if wait and not stored:
            stored = await self._pull_later(call, subscription, wanted)
        return messages.pulled(ack_prefix(project, call.name), stored)

    async def _pull_later(self, call: Call, subscription: Subscription, wanted: int) -> Sequence[Stored]:
        """Wait until there is something, or the time is over or the client has left; look at rights after each wait."""
        until = asyncio.get_running_loop().time() + self._deliverer.wait_seconds
        left = gone(call.receive)
        try:
            while await self._deliverer.wait(subscription, until, left):
                subscription = await self._to_pull_again(call)
                stored = await self._deliverer.pull(subscription, wanted, wait=True, project=call.names["project"])
                if stored:
                    return stored
            return ()
        finally:
            left.cancel()

    async def _to_pull_again(self, call: Call) -> Subscription:
        return await self._deliverer.to_pull(await self._admitted_again(call), SubscriptionName(call.name))

    async def _acknowledge(self, call: Call) -> bytes:
        project, caller = call.names["project"], call.caller
        holders, prefix = (project, caller.user), ack_prefix(project, call.name)
        began = time.monotonic()
        body = await self._bodies.read(call.scope["headers"], call.receive, None, holders)
        if time.monotonic() - began > LATE_SECONDS:
            caller = await self._admitted_again(call)
        with self._bodies.held(body, holders):
            ids = await self._messages.ack_ids(prefix, body)
        subscription = await self._deliverer.to_acknowledge(caller, SubscriptionName(call.name))
        await self._deliverer.acknowledge(subscription, messages.ack_numbers(prefix, ids))
        return b"{}"
