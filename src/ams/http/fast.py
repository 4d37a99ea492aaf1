"""The hot routes: publish, pull and acknowledge, on raw ASGI.

They take nine tenths of all requests, and a framework's routing and request objects would cost more than all the work
behind them (`docs/decisions/`). A request passes: gate -> use case -> engine, and back.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from ams.access.admission import Caller
from ams.core.names import SubscriptionName, TopicName, ack_prefix
from ams.http import messages
from ams.http.asgi import Receive
from ams.http.gate import Gate
from ams.http.limits import SMALL_BODY, Bodies, Unread, gone
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

    caller: Caller
    project: str
    name: str
    headers: list[tuple[bytes, bytes]]
    receive: Receive
    admit_again: Callable[[], Awaitable[Caller]]
    """Asks once more who asks, when that may have changed since."""


class FastRoutes:
    """Answers the three hot routes."""

    def __init__(
        self, gate: Gate, bodies: Bodies, unread: Unread, publisher: Publisher, deliverer: Deliverer, *, lenient: bool
    ) -> None:
        self._gate = gate
        self._bodies = bodies
        self._unread = unread
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
        headers = scope["headers"]
        names = {"project": project, variable: name}
        caller = await self._gate.admit(action, names, headers, scope["query_string"])
        again = partial(self._gate.admit_again, action, names, headers, scope["query_string"])
        return await handler(Call(caller, project, name, headers, receive, again))

    async def _publish(self, call: Call) -> bytes:
        topic = await self._publisher.topic(call.caller, TopicName(call.name))
        key = messages.idempotency_key(call.headers)

        async def look_again() -> None:
            nonlocal topic
            topic = await self._publisher.topic(await call.admit_again(), TopicName(call.name))

        holders = (call.project, call.caller.user)
        body = await self._bodies.read_with(call.headers, call.receive, None, look_again, holders)
        with self._bodies.held(body, holders):
            received = await self._messages.read(body, lenient=topic.schema is not None)
            appended = await self._publisher.publish(topic, received, key=key)
        return messages.published(appended.first, appended.count)

    async def _pull(self, call: Call) -> bytes:
        subscription = await self._deliverer.subscription(call.caller, SubscriptionName(call.name))

        async def look_again() -> Subscription:
            nonlocal subscription
            subscription = await self._deliverer.subscription(await call.admit_again(), SubscriptionName(call.name))
            return subscription

        body = await self._bodies.read_with(call.headers, call.receive, SMALL_BODY, look_again)
        wanted, wait = messages.pull_request(body)
        stored = await self._deliverer.pull(
            subscription,
            wanted,
            wait=wait,
            memory_left=lambda: self._unread.left(call.project),
            gone=lambda: gone(call.receive),
            again=look_again,
        )
        return messages.pulled(ack_prefix(call.project, call.name), stored)

    async def _acknowledge(self, call: Call) -> bytes:
        holders = (call.project, call.caller.user)
        body = await self._bodies.read_with(call.headers, call.receive, None, call.admit_again, holders)
        prefix = ack_prefix(call.project, call.name)
        with self._bodies.held(body, holders):
            ids = await self._messages.ack_ids(prefix, body)
        await self._deliverer.acknowledge(
            call.caller, SubscriptionName(call.name), lambda: messages.ack_numbers(prefix, ids)
        )
        return b"{}"
