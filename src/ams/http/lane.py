"""The fast lane: a request whose head is known goes from the connection to its use case and back, without ASGI.

ASGI costs a scope, a cycle, a task, two events and coroutines three deep for each request: more than a publish, a pull
or an acknowledgement itself. A head that was let in before is known (`ams.http.fast`), so its body is handed to the use
case in the connection's callback, as soon as it is complete. The use case is the same coroutine as on the way over
ASGI. It is run up to where it waits for the disk; what it waits for then calls the request back.

- Only a request that waits for no other is taken, with a known head and a body that comes whole and is not large.
  Whether what is known of the head holds is asked again when the body is complete.
- What is refused before anything is stored begins anew over ASGI. So one place words, counts and audits refusals.
- To uvicorn a request on the lane is a cycle, so that requests behind it wait, and a task, so that a stop waits for it.
"""

import asyncio
import types
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any, cast

import httptools
import structlog

from ams.core.errors import AmsError, OwnedElsewhere
from ams.core.held import SMALL
from ams.core.observing import REQUEST
from ams.http.app import REQUEST_ID, App, good_id
from ams.http.asgi import JSON, Event, Header
from ams.http.auditing import shown_path
from ams.http.big_bodies import BIG_BODY
from ams.http.fast import COUNTED, OFFERED, Admitted, FastRoutes, Head, NotOnLane
from ams.http.limits import Arriving
from ams.http.messages import IDEMPOTENCY_KEY, idempotency_key
from ams.http.protocol import LimitedProtocol, head_of_answer
from ams.service.delivering import UnreadAnswers

_ELSEWHERE = frozenset({b"expect", b"transfer-encoding", b"content-encoding", b"upgrade", b"origin"})
"""Header fields of requests that are not for the lane."""
_TOLD_APART = _ELSEWHERE | {b"x-api-key", b"authorization", b"connection", b"proxy-connection"}
"""Header fields that hot requests, and rights to them, depend on: those by which heads are told apart. The parser goes
by the last two. Others may differ in each request: dates, `traceparent`, `X-Forwarded-For`."""
_OF_ONE = frozenset({b"content-length", REQUEST_ID, IDEMPOTENCY_KEY})
"""Those that say what one request has for itself."""
_READ = _TOLD_APART | _OF_ONE
MOST_AT_ONCE = 8
"""Requests out of one packet. What is answered at once lets nobody else have a turn in between."""
_OK_FIELDS = b"%b: %b\r\n%b: %%b\r\ncontent-length: %%d\r\n\r\n" % (*JSON, REQUEST_ID)

logger = structlog.get_logger("ams.http")


class Lane:
    """What the connections of a server share."""

    def __init__(self, app: App, fast: FastRoutes, unread: UnreadAnswers) -> None:
        self.app = app
        self.fast = fast
        self.unread = unread
        self._default_headers: list[Header] | None = None
        self._start = b""

    def start_of_200(self, default_headers: list[Header], keep_alive: bool) -> bytes:
        """Return the head of an answer, to be given the request's id and the length of the body."""
        if default_headers is not self._default_headers:  # uvicorn makes a new list when the second changes
            self._default_headers = default_headers
            self._start = head_of_answer(200, default_headers)[:-2].replace(b"%", b"%%") + _OK_FIELDS
        return self._start if keep_alive else self._start[:-2] + b"connection: close\r\n\r\n"


class LaneProtocol(LimitedProtocol):
    """One client connection with the fast lane. The lane is set on a subclass by `with_lane`."""

    lane: Lane
    cycle: Any
    """Of uvicorn, or the request on the lane in its place, as `tasks` and `_running`."""
    tasks: Any
    _running: Any
    _admitted: Admitted | None = None
    """Of the request whose body arrives, while that is on the lane."""
    _known_head: Head = ()
    _request_id = b""
    """As its client gave it; empty: it gets one when its body is complete."""
    _keys: list[Header]
    """Its fields of an idempotency key."""
    _pieces: list[bytes]
    _received = 0
    _arriving: Arriving | None = None
    """Its body, when that is counted."""

    def _begin(self) -> None:
        """Take the request on the lane when its head is known; offer its head to be known otherwise."""
        parser = self.parser
        if parser.get_method() != b"POST":
            super()._begin()
            return
        head, length, request_id, keys = self._head()
        admitted = self.lane.fast.known(head)
        if admitted is not None and self._is_for_lane(admitted, length):
            self._admitted, self._request_id, self._known_head, self._keys = admitted, request_id, head, keys
            self._pieces, self._received = [], 0
            return
        super()._begin()
        if length and parser.should_keep_alive() and not _ELSEWHERE.intersection([name for name, _ in head[1:]]):
            cast("Any", self.scope)["state"][OFFERED] = head

    def _is_for_lane(self, admitted: Admitted, length: int) -> bool:
        """Whether a request with a known head may be taken: nothing waits before it, and its client reads."""
        if not 0 < length <= admitted.most or length > BIG_BODY or self._heads_begun > MOST_AT_ONCE:
            return False
        is_free = self.cycle is None or self.cycle.response_complete
        return is_free and not self.flow.write_paused and self.parser.get_http_version() == "1.1"

    def _head(self) -> tuple[Head, int, bytes, list[Header]]:
        """Return what requests with the same rights share, and what each has for itself.

        That is the length of the body (0: not said), the id given, and fields of an idempotency key.
        """
        shared: list[Any] = [self.url]
        keys: list[Header] = []
        length, request_id = 0, b""
        for field in self.headers:
            name = field[0]
            if name not in _READ:
                continue
            if name == b"content-length":
                length = int(field[1])  # digits, given once: the parser checked that
            elif name == REQUEST_ID:
                request_id = request_id or good_id(field[1])
            elif name == IDEMPOTENCY_KEY:
                keys.append(field)
            else:
                shared.append(field)
        return tuple(shared), length, request_id, keys

    def _has_begun(self) -> bool:
        return self._admitted is None

    def _take_body(self, body: bytes) -> None:
        """Gather the body of a request on the lane."""
        if self._admitted is None:
            super()._take_body(body)
            return
        self._pieces.append(body)
        self._received += len(body)
        if self._received > SMALL:
            self._count(self._admitted)

    def _count(self, admitted: Admitted) -> None:
        """Count the body; when there is too little memory, let the way over ASGI see to it."""
        if self._arriving is None:
            self._arriving = Arriving(admitted.holders, self._leave)
        try:
            self.lane.fast.bodies.grow(self._arriving, self._received)
        except AmsError:
            self._leave()

    def _take_message(self) -> None:
        """Hand a body to the use case."""
        admitted = self._admitted
        if admitted is None:
            super()._take_message()
            return
        self._request_id = self._request_id or self.lane.app.new_id()
        named = REQUEST.set(self._request_id)  # for what is logged; what is waited for, and tasks, take it from here
        fast, is_counted = self.lane.fast, False
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        try:
            if not fast.is_still(admitted):
                raise NotOnLane
            fast.gate.count_request(admitted.caller)
            is_counted = True
            fast.gate.count_connection(self, admitted.caller)
            work = admitted.act(body, idempotency_key(self._keys))
            waits_for = work.send(None)
        except StopIteration as done:
            self._start(admitted).answer(done.value)
        except Exception:  # it is raised again on the way over ASGI, which words it
            self._leave(is_counted=is_counted)
            super()._take_message()
        else:
            self._start(admitted).wait(work, waits_for, body)
        finally:
            REQUEST.reset(named)

    def _start(self, admitted: Admitted) -> "LaneRequest":
        request = LaneRequest(self, admitted, self._request_id, self._arriving)
        if self._arriving is not None:
            self.lane.fast.bodies.keep(self._arriving)
        self._project = cast("str", admitted.holders[0])
        self._admitted = self._arriving = None
        self._pieces = []
        self.cycle = self._running = request
        self.tasks.add(request)
        return request

    def _leave(self, *, is_counted: bool = False) -> None:
        """Let the request that arrives go on over ASGI, from its beginning."""
        pieces = self._drop()
        if self._request_id:
            self.headers.append((REQUEST_ID, self._request_id))  # the one that was logged already
        super()._begin()
        state = cast("Any", self.scope)["state"]
        state[OFFERED] = self._known_head
        if is_counted:
            state[COUNTED] = True
        for piece in pieces:
            super()._take_body(piece)

    def _drop(self) -> list[bytes]:
        """Forget the request that arrives, and return what came of its body."""
        pieces, self._pieces = self._pieces, []
        self._admitted = None
        if self._arriving is not None:
            self.lane.fast.bodies.release(self._arriving)
            self._arriving = None
        return pieces

    def _refuse(self, error: Exception) -> None:
        """Answer the request that arrives with an error, and close."""
        super()._refuse(error)
        if self._admitted is not None:
            self._drop()

    def shutdown(self) -> None:
        """Close when the request that arrives is answered."""
        self._read_held()
        if self._admitted is not None:
            self._leave()
        super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; what it asked to be stored is stored all the same."""
        if self._admitted is not None:
            self._drop()
        super().connection_lost(exc)


class _NoEvent:
    """In the place of the event by which uvicorn wakes an application that reads its request."""

    def set(self) -> None:
        """Do nothing."""


_NO_EVENT = _NoEvent()


class LaneRequest:
    """A request on the lane whose body is complete; in the place of uvicorn's cycle, and of its task.

    Its work is done at once (`answer`), or waits once for the disk (`wait`, then `_go_on`). What waits for more goes on
    in a task (`_rest`), which for a pull without messages begins anew over ASGI (`_over_asgi`). An answer that its
    client does not read at once is sent by a task (`_send_rest`), as are errors (`_fail`). Each ends in `_complete`.
    """

    __slots__ = (
        "_admitted",
        "_arriving",
        "_begun",
        "_connection",
        "_id",
        "_task",
        "_work",
        "disconnected",
        "has_input_ended",
        "keep_alive",
        "message_event",
        "response_complete",
        "response_started",
    )  # fmt: skip
    more_body = False

    def __init__(
        self, connection: LaneProtocol, admitted: Admitted, request_id: bytes, arriving: Arriving | None
    ) -> None:
        self._connection = connection
        self._admitted = admitted
        self._id = request_id
        self._arriving = arriving
        self._work: Coroutine[Any, Any, bytes] | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun: Event = {}
        """The head of an answer that is given as ASGI does."""
        self.message_event: Any = _NO_EVENT
        self.disconnected = self.response_started = self.response_complete = self.has_input_ended = False
        self.keep_alive = True

    def wait(self, work: Coroutine[Any, Any, bytes], waits_for: Any, body: bytes) -> None:
        """Go on with the work when what it waits for is there; `body` is what it was made of."""
        if not self._admitted.waits_once or not getattr(waits_for, "_asyncio_future_blocking", False):
            self._begin_task(self._rest(work, waits_for, self._scope(), body))
            return
        self._work = work
        waits_for._asyncio_future_blocking = False  # as a task does
        waits_for.add_done_callback(self._go_on)

    def _go_on(self, waited_for: Any) -> None:
        if self._work is not None:
            rounds = self._connection.rounds
            if rounds.free > 0:
                rounds.free -= 1
            elif rounds.is_over(self._connection.loop):
                rounds.put(self._admitted.holders[0], partial(self._go_on_now, waited_for))
                return
        self._go_on_now(waited_for)

    def _go_on_now(self, waited_for: Any) -> None:
        work, self._work = self._work, None
        if work is None:  # cancelled meanwhile
            if not waited_for.cancelled():
                waited_for.exception()  # nobody else looks at it, which asyncio would complain about
            return
        try:
            waits_for = work.send(None)
        except StopIteration as done:
            self.answer(done.value)
        except (Exception, asyncio.CancelledError) as error:
            self._begin_task(self._fail(error))
        else:
            self._begin_task(self._rest(work, waits_for))

    async def _rest(
        self, work: Coroutine[Any, Any, bytes], waits_for: Any, scope: dict[str, Any] | None = None, body: bytes = b""
    ) -> None:
        """Go on in a task with work that was run up to a wait; a pull has the `scope` and the `body` of its request."""
        try:
            answer = await _resumed(work, waits_for)
        except (NotOnLane, OwnedElsewhere):
            assert scope is not None
            await self._over_asgi(scope, body)
        except (Exception, asyncio.CancelledError) as error:
            await self._fail(error)
        else:
            self.answer(answer)

    def _scope(self) -> dict[str, Any]:
        """Return what ASGI says of the request, while its head is the last one that the connection has read."""
        connection = self._connection
        query = httptools.parse_url(connection.url).query or b""
        return {
            "type": "http",
            "method": "POST",
            "path": self._admitted.path,
            "query_string": query,
            "headers": [*connection.headers, (REQUEST_ID, self._id)],
            "client": connection.client,
            "state": {COUNTED: True},
        }

    async def _over_asgi(self, scope: dict[str, Any], body: bytes) -> None:
        """Begin anew, over ASGI, with a pull that waited for the disk, found nothing, and waits for a message now."""
        coming: list[Event] = [{"type": "http.request", "body": body, "more_body": False}]
        self.message_event = left = asyncio.Event()

        async def receive() -> Event:
            if coming:
                return coming.pop()
            while not (self.disconnected or self.has_input_ended):
                await left.wait()
            return {"type": "http.disconnect"}

        try:
            await self._connection.lane.app(scope, receive, self._send)
        except asyncio.CancelledError:  # its answer was not read until the service stopped
            self._connection.transport.close()
            raise
        finally:
            self._complete()

    def _begin_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._connection.loop.create_task(work)
        self._task.add_done_callback(self._task_ended)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        """Give up a request whose task ended without an answer: by a defect, or cancelled before its first step."""
        defect = None if task.cancelled() else task.exception()
        if defect is not None:
            path = shown_path(self._admitted.path)
            logger.error("request.failed", method="POST", path=path, error=type(defect).__name__, exc_info=defect)
        if task is self._task and not self.response_complete:
            self._connection.transport.close()
            self._complete()

    def cancel(self, msg: Any = None) -> None:
        """End a request that a stop does not wait for any longer."""
        if self._task is not None:
            self._task.cancel(msg)
            return
        work, self._work = self._work, None
        if work is not None:
            work.close()
            self._begin_task(self._fail(asyncio.CancelledError()))

    def answer(self, body: bytes) -> None:
        """Answer 200."""
        connection, size = self._connection, len(body)
        lane = connection.lane
        lane.app.answered[2] += 1
        if self.disconnected:
            self._end()
            return
        start = lane.start_of_200(connection.server_state.default_headers, self.keep_alive) % (self._id, size)
        self.response_started = True
        if size <= SMALL:
            connection.transport.write(start + body)
        elif connection.write_first(start, body) < size or connection.flow.write_paused:
            self._begin_task(self._send_rest(body))
            return
        self._complete()

    async def _send_rest(self, body: bytes) -> None:
        connection = self._connection
        project = cast("str", self._admitted.holders[0])
        try:
            with connection.lane.unread.held(project, len(body)):
                await connection.write_rest(body, self)
        except asyncio.CancelledError:  # it was not read until the service stopped
            connection.transport.close()
            raise
        finally:
            self._complete()

    async def _fail(self, error: BaseException) -> None:
        scope = {"method": "POST", "path": self._admitted.path, "client": self._connection.client}
        REQUEST.set(self._id)
        try:
            await self._connection.lane.app.fail(error, scope, self._send, self._id)
        finally:
            self._complete()

    async def _send(self, event: Event) -> None:
        """Take an ASGI event: the head of an answer, or all of its body."""
        if event["type"] == "http.response.start":
            self._begun = event
            return
        if self.disconnected:
            return
        connection, body = self._connection, event["body"]
        fields = [*connection.server_state.default_headers, *self._begun["headers"]]
        if not self.keep_alive:
            fields.append((b"connection", b"close"))
        self.response_started = True
        first = connection.write_first(head_of_answer(self._begun["status"], fields), body)
        if first < len(body) or connection.flow.write_paused:
            await connection.write_rest(body, self)

    def _complete(self) -> None:
        connection = self._connection
        self.response_complete = True
        if not self.keep_alive and not self.disconnected:
            connection.transport.close()
        self._end()
        if not self.disconnected:
            connection.on_response_complete()

    def _end(self) -> None:
        self.response_complete = True
        connection = self._connection
        connection.tasks.discard(self)
        if self._arriving is not None:
            connection.lane.fast.bodies.release(self._arriving)
            self._arriving = None
        # The connection knows its last request. Left in a circle, both and the buffers of TLS would stay until garbage
        # is looked for, which is once in a thousand connections.
        del self._connection


@types.coroutine
def _resumed(work: Coroutine[Any, Any, bytes], waits_for: Any) -> Generator[Any, Any, bytes]:
    """Go on with a coroutine that was run up to a wait by hand."""
    try:
        while True:
            try:
                given = yield waits_for
            except BaseException as error:
                waits_for = work.throw(error)
            else:
                waits_for = work.send(given)
    except StopIteration as done:
        return cast("bytes", done.value)


def with_lane(lane: Lane | None) -> type[LimitedProtocol]:
    """Return the class of connections with this lane; without one, of those that have none."""
    return LimitedProtocol if lane is None else type(LaneProtocol.__name__, (LaneProtocol,), {"lane": lane})
