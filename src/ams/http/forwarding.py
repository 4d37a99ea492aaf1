"""Forwarding to other nodes over HTTP (`ams.cluster.ownership`): passes on method, target and body, and the answer."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpcore
import structlog

from ams.cluster.ownership import OwnerRequests
from ams.core.errors import OUTCOME_UNKNOWN, OwnedElsewhere, Unavailable
from ams.core.names import SubscriptionId
from ams.core.telemetry import REQUEST
from ams.http.asgi import project_of
from ams.http.limits import cancel_if_left
from ams.outgoing.client import PORTS, HttpClient, NotReached, RequestFailed, new_request
from ams.outgoing.client import Response as OwnerAnswer
from ams.service.delivery import Gone, UnreadAnswers

T = TypeVar("T")

_FORWARDED_HEADERS = ("x-api-key", "authorization", "content-type", "accept", "if-match")
_RETURNED_HEADERS = (b"retry-after", b"www-authenticate", b"etag")

logger = structlog.get_logger("ams.http")


class Relayed(Exception):
    """Another node's answer that is not a 200."""

    def __init__(self, answer: OwnerAnswer) -> None:
        super().__init__(f"another node answered {answer.status}")
        self.answer = answer


class Forwarder:
    """Forwards requests to the nodes that own their subscriptions."""

    def __init__(
        self, client: HttpClient, node: str, doubt: Callable[[SubscriptionId], None], unread: UnreadAnswers
    ) -> None:
        """`node` is the name of this node; `doubt` is called if a node seems not to own a subscription."""
        self._client, self._unread = client, unread
        self._requests = OwnerRequests(node, doubt, _FORWARDED_HEADERS)

    async def run(
        self, act: Callable[[], Awaitable[T]], scope: MutableMapping[str, Any], body: Callable[[], bytes],
        left: Callable[[], Gone] | None = None, *, most: int = 0,
    ) -> T | OwnerAnswer:  # fmt: skip
        """Return the result of `act` here, or the answer of the node that owns its subscription.

        If a node is down, or denies its ownership, the owner is looked up once more. The answer has about `most` bytes.
        `left` watches for the client's disconnect, which cancels the request. Raises as `act`, `Relayed` for another
        answer than a 200, and `Unavailable` if the outcome is unknown.
        """
        asked: dict[str, OwnerAnswer | None] = {}
        while True:
            try:
                return await act()
            except OwnedElsewhere as elsewhere:
                owner = elsewhere
            if owner.node in asked:
                known = asked[owner.node]
                raise owner if known is None else Relayed(known)
            # With little memory for answers, a large one is fetched once a quarter of it is free.
            self._unread.check(project_of(scope), min(most, self._unread.most // 4))
            answer = asked[owner.node] = await self._ask_owner(owner, scope, body(), left)
            if answer is not None and answer.status == 200:
                return answer
            if answer is not None and answer.status != 503:
                raise Relayed(answer)
            self._requests.doubt(SubscriptionId(owner.subscription))

    async def close(self) -> None:
        """Close the idle connections."""
        await self._client.close()

    async def _ask_owner(
        self, owner: OwnedElsewhere, scope: MutableMapping[str, Any], body: bytes, left: Callable[[], Gone] | None
    ) -> OwnerAnswer | None:
        """Return the owner's answer; None if it is unreachable. Raises `owner` if it must not be asked."""
        asking = self._client.ask(self._request(owner, scope, body))
        watch = left() if left else None
        try:
            answer = await (cancel_if_left(asking, watch) if watch else asking)
        except NotReached as error:
            logger.warning("forward.not_reached", url=owner.url, reason=str(error))
            return None
        except RequestFailed as error:
            logger.warning("forward.failed", url=owner.url, reason=str(error))
            self._requests.doubt(SubscriptionId(owner.subscription))
            raise Unavailable(OUTCOME_UNKNOWN) from error
        finally:
            if watch:
                watch.cancel()
        returned = [(name.lower(), value) for name, value in answer.headers if name.lower() in _RETURNED_HEADERS]
        return answer._replace(headers=returned)

    def _request(self, owner: OwnedElsewhere, scope: MutableMapping[str, Any], body: bytes) -> httpcore.Request:
        given = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        said = self._requests.headers(owner, owner.url, given, (scope.get("client") or ("",))[0])
        headers = [(name.encode(), value.encode("latin-1")) for name, value in said]
        parts, query = urlsplit(owner.url), scope["query_string"]
        scheme, host = parts.scheme.encode(), (parts.hostname or "").encode()
        target = quote(scope["path"], safe="/:").encode() + (b"?" + query if query else b"")
        place = httpcore.URL(scheme=scheme, host=host, port=parts.port or PORTS[scheme], target=target)
        return new_request(scope["method"], place, [*headers, (b"x-request-id", REQUEST.get())], body)
