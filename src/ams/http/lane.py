"""The fast lane: a request whose head is known goes from the connection to its use case and back, without ASGI.

ASGI costs a scope, a task, an event and coroutines three deep for each request: more than a publish, a pull or an
acknowledgement itself. A head that was let in before is known (`ams.http.fast`), so its body is handed to the use case
in the connection's callback, as soon as it is complete. The use case is the same coroutine as on the way over ASGI. It
runs up to where it waits for the disk; its future then calls the request back.

- Only a request that waits for no other is taken, with a known head and a body that comes whole and is not large.
  Whether the knowledge still holds is asked again when the body is complete.
- A request that is refused before anything is stored begins anew over ASGI. So one place words, counts and audits
  refusals.
"""

import asyncio
import time
import types
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any, cast

import structlog

from ams.core.errors import AmsError, OwnedElsewhere
from ams.core.fair_share import SMALL
from ams.core.observing import REQUEST
from ams.http.app import REQUEST_ID, App, good_id
from ams.http.asgi import JSON, Application, Header, Receive, Send
from ams.http.auditing import Traced, log_request, shown_path
from ams.http.bodies import BIG_BODY
from ams.http.fast import COUNTED, OFFERED, Admitted, FastRoutes, Head, NotOnLane
from ams.http.limits import PACED_BYTES, Arriving
from ams.http.messages import IDEMPOTENCY_KEY, idempotency_key
from ams.service.delivering import UnreadAnswers
from ams.web.answers import answer_head
from ams.web.asgi_exchange import AsgiExchange
from ams.web.connection import Exchange, HttpConnection
from ams.web.request_reader import RequestHead

_ELSEWHERE = frozenset({b"expect", b"transfer-encoding", b"content-encoding", b"upgrade", b"origin"})
"""Header fields of requests that are not for the lane."""
_KEY_FIELDS = _ELSEWHERE | {b"x-api-key", b"authorization", b"connection", b"proxy-connection"}
"""Header fields that hot requests, and rights to them, depend on: they are the key by which a head is known. The parser
goes by the last two. Others may differ in each request: dates, `traceparent`, `X-Forwarded-For`."""
_OWN_FIELDS = frozenset({b"content-length", REQUEST_ID, IDEMPOTENCY_KEY})  # fields that differ from request to request
_READ_FIELDS = _KEY_FIELDS | _OWN_FIELDS
_OK_FIELDS = b"%b: %b\r\n%b: %%b\r\ncontent-length: %%d\r\n\r\n" % (*JSON, REQUEST_ID)

logger = structlog.get_logger("ams.http")


class Lane:
    """Opens the exchanges of a port: on the lane, or over ASGI."""

    def __init__(self, app: App, fast: FastRoutes, unread: UnreadAnswers, *, is_traced: bool = False) -> None:
        """`is_traced`: each request is logged at debug."""
        self.app, self.fast, self.unread, self.is_traced = app, fast, unread, is_traced
        self.asgi = self._traced(app)  # the application for requests that are not on the lane
        self._default_headers: list[Header] | None = None
        self._start = b""

    def open(self, connection: HttpConnection, request: RequestHead) -> Exchange:
        """Take a request on the lane when its head is known; offer its head to be known otherwise."""
        if request.method != b"POST":
            return AsgiExchange(connection, self.asgi, request)
        head, length, request_id, keys = _split(request)
        admitted = self.fast.known(head)
        if admitted is not None and self._is_for_lane(connection, request, admitted, length):
            return LaneExchange(self, connection, request, admitted, head, request_id, keys)
        is_offered = length and request.keep_alive and not _ELSEWHERE.intersection([name for name, _ in head[1:]])
        return AsgiExchange(connection, self.asgi, request, {OFFERED: head} if is_offered else None)

    def open_failure(
        self, connection: HttpConnection, request: RequestHead, error: BaseException, request_id: bytes
    ) -> AsgiExchange:
        """Return an exchange that answers an error, which came when something may have been stored."""

        async def fail(scope: dict[str, Any], receive: Receive, send: Send) -> None:
            REQUEST.set(request_id)
            await self.app.fail(error, scope, send, request_id)

        return AsgiExchange(connection, self._traced(fail), request)

    def start_of_200(self, default_headers: list[Header], keep_alive: bool) -> bytes:
        """Return the head of an answer, to be given the request's id and the length of the body."""
        if default_headers is not self._default_headers:  # a new list when the date changes
            self._default_headers = default_headers
            self._start = answer_head(200, default_headers)[:-2].replace(b"%", b"%%") + _OK_FIELDS
        return self._start if keep_alive else self._start[:-2] + b"connection: close\r\n\r\n"

    def _is_for_lane(self, connection: HttpConnection, request: RequestHead, admitted: Admitted, length: int) -> bool:
        """Return whether a request with a known head may be taken: nothing waits before it, and its client reads."""
        if not 0 < length <= admitted.most or length > BIG_BODY or not request.is_alone:
            return False
        if length > PACED_BYTES and self.fast.bodies.must_wait(admitted.holders):
            return False
        return connection.is_free and not connection.is_write_paused and request.version == "1.1"

    def _traced(self, app: Application) -> Application:
        return Traced(app) if self.is_traced else app


def _split(request: RequestHead) -> tuple[Head, int, bytes, list[Header]]:
    """Return a head's key, and of this request the length (0: not given), the id and the idempotency fields."""
    shared: list[Any] = [request.target]
    keys: list[Header] = []
    length, request_id = 0, b""
    for field in request.headers:
        name = field[0]
        if name not in _READ_FIELDS:
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


class LaneExchange:
    """A request on the lane.

    Its body is gathered, and handed to the use case when it is complete. The work is done at once (`_answer`), or waits
    once for the disk (`_wait`, then `_go_on`). Work that waits for more goes on in a task (`_rest`), and an answer that
    its client does not read at once is sent by a task (`_send_rest`). Errors, and pulls that wait for messages, are
    handed over to an `AsgiExchange`.
    """

    __slots__ = (
        "_admitted", "_arriving", "_began", "_connection", "_head", "_id", "_is_body_complete", "_is_counted",
        "_is_left", "_keys", "_lane", "_pieces", "_received", "_request", "_task", "_work", "has_answer_begun",
        "is_answered", "keep_alive",
    )  # fmt: skip

    def __init__(
        self,
        lane: Lane,
        connection: HttpConnection,
        request: RequestHead,
        admitted: Admitted,
        head: Head,
        request_id: bytes,
        keys: list[Header],
    ) -> None:
        self.keep_alive = True
        self.has_answer_begun = self.is_answered = False
        self._lane, self._connection, self._request = lane, connection, request
        self._admitted, self._head, self._keys = admitted, head, keys
        self._id = request_id  # as its client gave it; empty: it gets one when its body is complete
        self._pieces: list[bytes] = []
        self._received = 0
        self._arriving: Arriving | None = None  # its body, while that counts for the memory of bodies
        self._is_body_complete = self._is_counted = self._is_left = False
        self._work: Coroutine[Any, Any, bytes] | None = None  # the use case, while it waits for the disk
        self._task: asyncio.Task[None] | None = None
        self._began = time.perf_counter() if lane.is_traced else 0.0

    # From the connection

    def begin(self) -> None:
        """Wait for the body: nothing is done before that is complete."""

    def take_body(self, body: bytes) -> None:
        """Gather the body, and count it; when there is too little memory, the way over ASGI sees to it."""
        self._pieces.append(body)
        self._received += len(body)
        if self._received <= SMALL:
            return
        if self._arriving is None:
            self._arriving = Arriving(self._admitted.holders, self._leave_lane)
        try:
            self._lane.fast.bodies.grow(self._arriving, self._received)
        except AmsError:
            self._leave_lane()

    def end_body(self) -> None:
        """Hand the body to the use case."""
        self._is_body_complete = True
        self._id = self._id or self._lane.app.new_id()
        fast, admitted = self._lane.fast, self._admitted
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        named = REQUEST.set(self._id)  # for log lines; futures and tasks take it from here
        try:
            if not fast.is_still(admitted):
                raise NotOnLane
            fast.gate.count_request(admitted.caller)
            self._is_counted = True
            fast.gate.count_connection(self._connection, admitted.caller)
            work = admitted.act(body, idempotency_key(self._keys))
            waits_for = work.send(None)
        except StopIteration as done:
            self._begin_work()
            self._answer(done.value)
        except Exception:  # it is raised again on the way over ASGI, which words it
            self._leave_lane()
        else:
            self._begin_work()
            self._wait(work, waits_for, body)
        finally:
            REQUEST.reset(named)

    def end_input(self) -> None:
        """Go on: the client may still read."""

    def leave(self) -> None:
        """Take note that the client has left; the work goes on, as it stores something."""
        self._is_left = True
        if not self._is_body_complete:
            self._release_body()

    def prepare_stop(self) -> None:
        self.keep_alive = False
        if not self._is_body_complete:
            self._leave_lane()

    def cancel(self) -> None:
        """Answer that the service is stopping, unless the answer has begun."""
        work, self._work = self._work, None
        if self._task is not None:
            self._task.cancel()
        elif work is not None:
            work.close()
            self._fail(asyncio.CancelledError())

    # Work

    def _begin_work(self) -> None:
        self._connection.port.exchanges.add(self)
        self._connection.note_project(cast("str", self._admitted.holders[0]))
        if self._arriving is not None:
            self._lane.fast.bodies.keep(self._arriving)
        self._pieces = []

    def _wait(self, work: Coroutine[Any, Any, bytes], waits_for: Any, body: bytes) -> None:
        """Go on with the work when its future is done; `body` was its input."""
        if not self._admitted.waits_once or not getattr(waits_for, "_asyncio_future_blocking", False):
            self._begin_task(self._rest(work, waits_for, body))
            return
        self._work = work
        waits_for._asyncio_future_blocking = False  # as a task does
        waits_for.add_done_callback(self._go_on)

    def _go_on(self, waited_for: Any) -> None:
        if self._work is not None:
            scheduler = self._connection.port.scheduler
            if scheduler.free > 0:
                scheduler.free -= 1
            elif scheduler.must_wait(self._connection.loop):
                scheduler.put(self._admitted.holders[0], partial(self._go_on_now, waited_for))
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
            self._answer(done.value)
        except (Exception, asyncio.CancelledError) as error:
            self._fail(error)
        else:
            self._begin_task(self._rest(work, waits_for, b""))

    async def _rest(self, work: Coroutine[Any, Any, bytes], waits_for: Any, body: bytes) -> None:
        """Go on in a task with work that was run up to a wait; a pull may need its `body` to begin anew."""
        try:
            answer = await _resumed(work, waits_for)
        except (NotOnLane, OwnedElsewhere):
            self._pieces = [body]
            self._leave_lane()
        except (Exception, asyncio.CancelledError) as error:
            self._fail(error)
        else:
            self._answer(answer)

    def _begin_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._connection.loop.create_task(work)
        self._task.add_done_callback(self._end_task)

    def _end_task(self, task: "asyncio.Task[None]") -> None:
        """Give up a request whose task ended without an answer: by a defect, or cancelled before its first step."""
        defect = None if task.cancelled() else task.exception()
        if defect is not None:
            path = shown_path(self._admitted.path)
            logger.error("request.failed", method="POST", path=path, error=type(defect).__name__, exc_info=defect)
        if task is self._task and not self.is_answered and self in self._connection.port.exchanges:
            self.keep_alive = False
            self._end_answer()

    # Answers

    def _answer(self, body: bytes) -> None:
        connection, lane, size = self._connection, self._lane, len(body)
        lane.app.answered[2] += 1
        if lane.is_traced:
            log_request("POST", self._admitted.path, 200, self._began)
        if self._is_left:
            self._end()
            return
        head = lane.start_of_200(connection.port.default_headers, self.keep_alive) % (self._id, size)
        self.has_answer_begun = True
        at = connection.write_first(head, body)
        if at < size or (size > SMALL and connection.is_write_paused):
            self._begin_task(self._send_rest(body, at))
            return
        self._end_answer()

    async def _send_rest(self, body: bytes, at: int) -> None:
        project = cast("str", self._admitted.holders[0])
        try:
            with self._lane.unread.held(project, len(body)):
                await self._connection.write_rest(body, at)
        except asyncio.CancelledError:  # it was not read until the service stopped
            self.keep_alive = False
            raise
        finally:
            self._end_answer()

    def _end_answer(self) -> None:
        self.is_answered = True
        self._end()
        if not self._is_left:
            self._connection.end_answer(self)

    def _end(self) -> None:
        self._release_body()
        self._connection.port.end_exchange(self)

    # Ways off the lane

    def _leave_lane(self) -> None:
        """Let the request begin anew over ASGI."""
        if self._is_left:
            self._end()
            return
        request = self._request
        if self._id:
            request = request._replace(headers=[*request.headers, (REQUEST_ID, self._id)])  # it was logged already
        state: dict[str, Any] = {COUNTED: True} if self._is_counted else {}
        if self._task is None:
            state[OFFERED] = self._head
        successor = AsgiExchange(self._connection, self._lane.asgi, request, state)
        pieces, self._pieces = self._pieces, []
        self._hand_over(successor)
        for piece in pieces:
            successor.take_body(piece)
        if self._is_body_complete:
            successor.end_body()

    def _fail(self, error: BaseException) -> None:
        """Answer an error; it is logged and counted also when the client has left."""
        failure = self._lane.open_failure(self._connection, self._request, error, self._id)
        if self._is_left:
            failure.leave()
            failure.begin()
            self._end()
        else:
            self._hand_over(failure)

    def _hand_over(self, successor: AsgiExchange) -> None:
        self._connection.hand_over(successor, self.keep_alive)
        self._end()

    def _release_body(self) -> None:
        if self._arriving is not None:
            self._lane.fast.bodies.release(self._arriving)
            self._arriving = None


@types.coroutine
def _resumed(work: Coroutine[Any, Any, bytes], waits_for: Any) -> Generator[Any, Any, bytes]:
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
