"""The fast lane: a request with a known head goes from the connection to its use case and back, without ASGI.

A head that was admitted before is cached (`ams.http.hot_routes`). So the connection's callback passes the complete body
straight to the use case: the same coroutine as over ASGI (decision 0033). It runs until it waits for the disk; its
future then resumes the request.

- The lane takes requests that wait for no other, with a cached head, and a body that is complete and not large.
  The cached data is checked again when the body is complete.
- A request refused before anything is stored starts again over ASGI. So one place formats, counts and audits refusals.
"""

import asyncio
import time
import types
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any, cast

import structlog

from ams.core.errors import AmsError, OwnedElsewhere
from ams.core.fair_share import MAX_UNCOUNTED_BYTES
from ams.core.telemetry import REQUEST
from ams.http.app import REQUEST_ID, App, good_id
from ams.http.asgi import JSON, Application, Header, Receive, Send
from ams.http.audit import log_request, log_requests, shown_path
from ams.http.bodies import BIG_BODY
from ams.http.hot_routes import COUNTED_KEY, HEAD_KEY, Admitted, FastRoutes, Head, NotOnLane, Work
from ams.http.limits import UNPACED_BYTES, ArrivingBody
from ams.http.messages import IDEMPOTENCY_KEY, idempotency_key
from ams.service.delivery import UnreadAnswers
from ams.web.answers import answer_head
from ams.web.asgi_exchange import AsgiExchange
from ams.web.connection import Exchange, HttpConnection
from ams.web.request_reader import RequestHead

_EXCLUDED_FIELDS = frozenset({b"expect", b"transfer-encoding", b"content-encoding", b"upgrade", b"origin"})
"""Header fields of requests that the lane does not take."""
_KEY_FIELDS = _EXCLUDED_FIELDS | {b"x-api-key", b"authorization", b"connection", b"proxy-connection"}
"""Header fields that affect hot requests or rights to them: part of a head's cache key. The last two matter to the
parser. Others may differ in each request: dates, `traceparent`, `X-Forwarded-For`."""
_OWN_FIELDS = frozenset({b"content-length", REQUEST_ID, IDEMPOTENCY_KEY})  # fields that differ from request to request
_READ_FIELDS = _KEY_FIELDS | _OWN_FIELDS
_OK_FIELDS = b"%b: %b\r\n%b: %%b\r\ncontent-length: %%d\r\n\r\n" % (*JSON, REQUEST_ID)

logger = structlog.get_logger("ams.http")


class Lane:
    """Creates the exchanges of a port: on the lane, or over ASGI."""

    def __init__(self, app: App, fast: FastRoutes, unread: UnreadAnswers, *, is_traced: bool = False) -> None:
        """`is_traced`: each request is logged at debug."""
        self.app, self.fast, self.unread, self.is_traced = app, fast, unread, is_traced
        self.asgi = self._trace(app)  # the application for other requests
        self._default_headers: list[Header] | None = None
        self._start = b""

    def open(self, connection: HttpConnection, request: RequestHead) -> Exchange:
        """Take a request on the lane if its head is cached; otherwise offer its head to be cached."""
        if request.method != b"POST":
            return AsgiExchange(connection, self.asgi, request)
        head, length, request_id, keys = _split(request)
        admitted = self.fast.cached_head(head)
        if admitted is not None and self._is_for_lane(connection, request, admitted, length):
            return LaneExchange(self, connection, request, admitted, head, request_id, keys)
        is_offered = length and request.keep_alive and not _EXCLUDED_FIELDS.intersection([name for name, _ in head[1:]])
        return AsgiExchange(connection, self.asgi, request, {HEAD_KEY: head} if is_offered else None)

    def open_failure(
        self, connection: HttpConnection, request: RequestHead, error: BaseException, request_id: bytes
    ) -> AsgiExchange:
        """Return an exchange that answers an error after something may have been stored."""

        async def fail(scope: dict[str, Any], receive: Receive, send: Send) -> None:
            REQUEST.set(request_id)
            await self.app.fail(error, scope, send, request_id)

        return AsgiExchange(connection, self._trace(fail), request)

    def start_of_200(self, default_headers: list[Header], keep_alive: bool) -> bytes:
        """Return the head of an answer, with placeholders for the request id and the body's length."""
        if default_headers is not self._default_headers:  # a new list when the date changes
            self._default_headers = default_headers
            self._start = answer_head(200, default_headers)[:-2].replace(b"%", b"%%") + _OK_FIELDS
        return self._start if keep_alive else self._start[:-2] + b"connection: close\r\n\r\n"

    def _is_for_lane(self, connection: HttpConnection, request: RequestHead, admitted: Admitted, length: int) -> bool:
        """Return whether the lane may take a request: nothing waits before it, and its client reads."""
        if not 0 < length <= admitted.most or length > BIG_BODY or not request.is_alone:
            return False
        if length > UNPACED_BYTES and self.fast.bodies.must_wait(admitted.holders):
            return False
        return connection.is_free and not connection.is_write_paused and request.version == "1.1"

    def _trace(self, app: Application) -> Application:
        return log_requests(app) if self.is_traced else app


def _split(request: RequestHead) -> tuple[Head, int, bytes, list[Header]]:
    """Return the cache key of a head, and the request's length (0: none), id and idempotency fields."""
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

    The body is collected and passed to the use case when complete. The work finishes at once (`_answer`), or waits once
    for the disk (`_wait`, then `_go_on`). Work with more waits continues in a task (`_rest`). A task sends an answer
    that the client does not read at once (`_send_rest`). An `AsgiExchange` takes over errors, and pulls that wait for
    messages.
    """

    __slots__ = (
        "_admitted", "_arriving", "_began", "_connection", "_head", "_id", "_is_body_complete", "_is_counted",
        "_is_left", "_keys", "_lane", "_pieces", "_received", "_request", "_task", "_work", "has_answer_begun",
        "is_answered", "keep_alive",
    )  # fmt: skip

    def __init__(
        self, lane: Lane, connection: HttpConnection, request: RequestHead, admitted: Admitted, head: Head,
        request_id: bytes, keys: list[Header],
    ) -> None:  # fmt: skip
        self.keep_alive = True
        self.has_answer_begun = self.is_answered = False
        self._lane, self._connection, self._request = lane, connection, request
        self._admitted, self._head, self._keys = admitted, head, keys
        self._id = request_id  # the client's; empty: created when the body is complete
        self._pieces: list[bytes] = []
        self._received = 0
        self._arriving: ArrivingBody | None = None  # its body, while that counts for the memory of bodies
        self._is_body_complete = self._is_counted = self._is_left = False
        self._work: Work | None = None  # the use case, while it waits for the disk
        self._task: asyncio.Task[None] | None = None
        self._began = time.perf_counter() if lane.is_traced else 0.0

    # Called by the connection

    def begin(self) -> None:
        """Do nothing until the body is complete."""

    def take_body(self, body: bytes) -> None:
        """Collect and count the body; on too little memory, continue over ASGI."""
        self._pieces.append(body)
        self._received += len(body)
        if self._received <= MAX_UNCOUNTED_BYTES:
            return
        if self._arriving is None:
            self._arriving = ArrivingBody(self._admitted.holders, self._leave_lane)
        try:
            self._lane.fast.bodies.grow(self._arriving, self._received)
        except AmsError:
            self._leave_lane()

    def end_body(self) -> None:
        """Pass the body to the use case."""
        self._is_body_complete = True
        self._id = self._id or self._lane.app.new_id()
        fast, admitted = self._lane.fast, self._admitted
        body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        named = REQUEST.set(self._id)  # for log lines; futures and tasks inherit it
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
        except Exception:  # raised again over ASGI, which formats it
            self._leave_lane()
        else:
            self._begin_work()
            self._wait(work, waits_for, body)
        finally:
            REQUEST.reset(named)

    def end_input(self) -> None:
        """Go on: the client may still read."""

    def leave(self) -> None:
        """Go on although the client has left: the work stores something."""
        self._is_left = True
        if not self._is_body_complete:
            self._release_body()

    def prepare_stop(self) -> None:
        self.keep_alive = False
        if not self._is_body_complete:
            self._leave_lane()

    def cancel(self) -> None:
        """Answer that the service is stopping, unless the answer has started."""
        work, self._work = self._work, None
        if self._task is not None:
            self._task.cancel()
        elif work is not None:
            work.close()
            self._fail(asyncio.CancelledError())

    # Work

    def _begin_work(self) -> None:
        self._connection.port.exchanges.add(self)
        self._connection.project = cast("str", self._admitted.holders[0])
        if self._arriving is not None:
            self._lane.fast.bodies.keep(self._arriving)
        self._pieces = []

    def _wait(self, work: Work, waits_for: Any, body: bytes) -> None:
        """Continue the work when its future is done; `body` was its input."""
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
                scheduler.enqueue(self._admitted.holders[0], partial(self._go_on_now, waited_for))
                return
        self._go_on_now(waited_for)

    def _go_on_now(self, waited_for: Any) -> None:
        work, self._work = self._work, None
        if work is None:  # cancelled meanwhile
            if not waited_for.cancelled():
                waited_for.exception()  # nobody else retrieves it, and asyncio would warn
            return
        try:
            waits_for = work.send(None)
        except StopIteration as done:
            self._answer(done.value)
        except (Exception, asyncio.CancelledError) as error:
            self._fail(error)
        else:
            self._begin_task(self._rest(work, waits_for, b""))

    async def _rest(self, work: Work, waits_for: Any, body: bytes) -> None:
        """Continue suspended work in a task; a pull may need its `body` to start again."""
        try:
            answer = await _resume(work, waits_for)
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
        """Abort a request whose task ended without an answer: by a defect, or cancelled before its first step."""
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
        if at < size or (size > MAX_UNCOUNTED_BYTES and connection.is_write_paused):
            self._begin_task(self._send_rest(body, at))
            return
        self._end_answer()

    async def _send_rest(self, body: bytes, at: int) -> None:
        project = cast("str", self._admitted.holders[0])
        try:
            with self._lane.unread.hold_answer(project, len(body)):
                await self._connection.write_rest(body, at)
        except asyncio.CancelledError:  # unread until the service stopped
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

    # Leaving the lane

    def _leave_lane(self) -> None:
        if self._is_left:
            self._end()
            return
        request = self._request
        if self._id:
            request = request._replace(headers=[*request.headers, (REQUEST_ID, self._id)])  # it has been logged
        state: dict[str, Any] = {COUNTED_KEY: True} if self._is_counted else {}
        if self._task is None:
            state[HEAD_KEY] = self._head
        successor = AsgiExchange(self._connection, self._lane.asgi, request, state)
        pieces, self._pieces = self._pieces, []
        self._hand_over(successor)
        for piece in pieces:
            successor.take_body(piece)
        if self._is_body_complete:
            successor.end_body()

    def _fail(self, error: BaseException) -> None:
        """Answer an error; log and count it even if the client has left."""
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
def _resume(work: Work, waits_for: Any) -> Generator[Any, Any, bytes]:
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
