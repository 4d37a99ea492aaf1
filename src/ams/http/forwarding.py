"""Forwarding: a request about a parallel subscription that another node owns goes to that node.

It goes as it came: method, target, token and body. The owner lets it in and counts it as any other, so what it answers
is the answer, whatever the status. A forwarded request is marked, and a marked one is not forwarded again: two nodes
that each take the other for the owner answer 503 instead of asking each other for ever. The mark takes something away
and gives nothing, so it needs no secret: who forges it is answered 503 where others are helped.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import httpcore
import structlog

from ams.core.errors import OUTCOME_UNKNOWN, OwnedElsewhere, Unavailable
from ams.core.names import SubscriptionId
from ams.core.observing import REQUEST
from ams.http.asgi import Header, project_of
from ams.http.limits import unless_left
from ams.outgoing.client import PORTS, HttpClient, NotReached, RequestFailed, new_request
from ams.service.delivering import Gone, UnreadAnswers

T = TypeVar("T")

MARK = b"x-ams-forwarded-by"
_PASSED_ON = frozenset({b"x-api-key", b"authorization", b"content-type", b"accept", b"if-match"})
_FORWARDED_FOR = b"x-forwarded-for"
_ANSWERED = (b"retry-after", b"www-authenticate", b"etag")
_PART_OF_MEMORY = 4  # where answers have little memory, a large one is fetched when this part of it is free

logger = structlog.get_logger("ams.http")


class Answer(NamedTuple):
    """The answer of the owner."""

    status: int
    body: bytes
    headers: list[Header]  # beside type and length of the body


class Relayed(Exception):
    """The answer of another node, which is no 200."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"another node answered {answer.status}")
        self.answer = answer


class Forwarder:
    """Has done elsewhere what another node has to do."""

    def __init__(
        self, client: HttpClient, node: str, doubt: Callable[[SubscriptionId], None], unread: UnreadAnswers
    ) -> None:
        """`node` is the name of this one; `doubt` is told when a node does not seem to own a subscription.

        `unread` is the memory of answers that are not read yet.
        """
        self._client = client
        self._node = node
        self._doubt = doubt
        self._unread = unread

    async def run(
        self,
        act: Callable[[], Awaitable[T]],
        scope: MutableMapping[str, Any],
        body: Callable[[], bytes],
        left: Callable[[], Gone] | None = None,
        *,
        most: int = 0,
    ) -> T | Answer:
        """Return what `act` does here, or else the answer of the node that owns what it is about.

        When a node is gone, or says that it does not own it, it is looked once more who does by now. The answer has
        about `most` bytes; `left` watches for the client to leave, which ends the request. Raises what `act` does, and
        `Unavailable` when it is not known what came of it.
        """
        asked: dict[str, Answer | None] = {}
        while True:
            try:
                return await act()
            except OwnedElsewhere as elsewhere:
                if not elsewhere.url or any(name == MARK for name, _ in scope["headers"]):
                    raise
                owner = elsewhere
            if owner.node in asked:
                known = asked[owner.node]
                if known is None:
                    raise owner
                return known
            self._unread.check(project_of(scope), min(most, self._unread.most // _PART_OF_MEMORY))
            answer = asked[owner.node] = await self._asked(owner, scope, body(), left)
            if answer is not None and answer.status != 503:
                return answer
            self._doubt(SubscriptionId(owner.subscription))

    async def close(self) -> None:
        """End the connections that are kept."""
        await self._client.close()

    async def _asked(
        self, owner: OwnedElsewhere, scope: MutableMapping[str, Any], body: bytes, left: Callable[[], Gone] | None
    ) -> Answer | None:
        """Return what the owner answers; None when it cannot be reached."""
        asking = self._client.ask(self._request(owner.url, scope, body))
        watch = left() if left else None
        try:
            answer = await (unless_left(asking, watch) if watch else asking)
        except NotReached as error:
            logger.warning("forward.not_reached", url=owner.url, reason=str(error))
            return None
        except RequestFailed as error:
            logger.warning("forward.failed", url=owner.url, reason=str(error))
            self._doubt(SubscriptionId(owner.subscription))
            raise Unavailable(OUTCOME_UNKNOWN) from error
        finally:
            if watch:
                watch.cancel()
        headers = [(name.lower(), value) for name, value in answer.headers if name.lower() in _ANSWERED]
        return Answer(answer.status, answer.body, headers)

    def _request(self, url: str, scope: MutableMapping[str, Any], body: bytes) -> httpcore.Request:
        parts = urlsplit(url)
        scheme = parts.scheme.encode()
        query = scope["query_string"]
        target = quote(scope["path"], safe="/:").encode() + (b"?" + query if query else b"")
        place = httpcore.URL(
            scheme=scheme, host=(parts.hostname or "").encode(), port=parts.port or PORTS[scheme], target=target
        )
        headers = [field for field in scope["headers"] if field[0] in _PASSED_ON]
        hops = [value for name, value in scope["headers"] if name == _FORWARDED_FOR]
        if scope.get("client"):
            hops.append(scope["client"][0].encode())
        if hops:
            headers.append((_FORWARDED_FOR, b", ".join(hops)))
        headers += [(b"x-request-id", REQUEST.get()), (MARK, self._node.encode())]
        return new_request(scope["method"], place, headers, body)
