"""Which node is asked, with what, and what becomes of its answer."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpcore
import pytest

from ams.core.errors import OUTCOME_UNKNOWN, Overloaded, OwnedElsewhere, Unavailable
from ams.core.names import SubscriptionId
from ams.core.observing import REQUEST
from ams.http.forwarding import MARK, Answer, Forwarder
from ams.http.limits import ClientLeft
from ams.outgoing.client import HttpClient, NotReached, RequestFailed, Response
from ams.service.delivering import UnreadAnswers
from tests.support.waiting import PATIENCE_SECONDS

A = OwnedElsewhere(subscription="s", node="a", url="http://a.example:8080")
B = OwnedElsewhere(subscription="s", node="b", url="https://[::1]/")
SILENT = OwnedElsewhere(subscription="s", node="a")
DONE = Response(200, b"{}", ((b"Content-Type", b"application/json"), (b"X-Request-Id", b"theirs")))
BUSY = Response(503, b"busy", ((b"Retry-After", b"2"),))


class Nodes(HttpClient):
    """Other nodes, with the answers that a test gives them."""

    def __init__(self, *answers: Response | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[httpcore.Request] = []

    async def ask(self, request: httpcore.Request) -> Response:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Site:
    """A forwarder, and what it is told by those whom it asks."""

    def __init__(self, nodes: Nodes, *owners: OwnedElsewhere | bytes) -> None:
        self.nodes, self.owners, self.unread = nodes, list(owners), UnreadAnswers(2**20)
        self.doubted: list[str] = []
        self.forwarder = Forwarder(nodes, "me", self.doubted.append, self.unread)

    async def act(self) -> bytes:
        owner = self.owners.pop(0)
        if isinstance(owner, bytes):
            return owner
        raise owner

    async def run(self, left: Callable[[], asyncio.Future[None]] | None = None, **more: Any) -> bytes | Answer:
        scope = {
            "method": "POST",
            "path": "/v1/projects/P/subscriptions/s:pull",
            "query_string": b"key=token&x=%2F",
            "headers": [(b"x-api-key", b"token"), (b"host", b"ams.example"), (b"content-type", b"application/json")],
            "client": ("10.0.0.1", 4711),
            **more,
        }
        return await self.forwarder.run(self.act, scope, lambda: b"body", left, most=100)


async def test_what_this_node_does_is_asked_nowhere() -> None:
    site = Site(Nodes(), b"done")
    assert await site.run() == b"done"


async def test_a_request_goes_to_its_owner_as_it_came_and_its_answer_comes_back() -> None:
    REQUEST.set(b"the-id")
    site = Site(Nodes(DONE._replace(headers=((b"ETag", b'"7"'),))), A)
    headers = [
        (b"authorization", b"Bearer t"), (b"x-forwarded-for", b"192.0.2.7, 192.0.2.8"), (b"cookie", b"c"),
        (b"content-length", b"9"), (b"if-match", b'"7"'),
    ]  # fmt: skip
    assert await site.run(headers=headers) == Answer(200, b"{}", [(b"etag", b'"7"')])

    (request,) = site.nodes.asked
    assert request.method == b"POST"
    assert bytes(request.url) == b"http://a.example:8080/v1/projects/P/subscriptions/s:pull?key=token&x=%2F"
    sent = {name.lower(): value for name, value in request.headers}
    del sent[b"user-agent"]
    assert sent == {
        b"host": b"a.example:8080", b"content-length": b"4", b"authorization": b"Bearer t", b"if-match": b'"7"',
        b"x-forwarded-for": b"192.0.2.7, 192.0.2.8, 10.0.0.1", b"x-request-id": b"the-id", MARK: b"me",
    }  # fmt: skip


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 412, 413, 429, 500])
async def test_a_refusal_of_the_owner_is_the_answer(status: int) -> None:
    said = Response(status, b"no", ((b"Retry-After", b"2"), (b"WWW-Authenticate", b"Bearer"), (b"Server", b"x")))
    site = Site(Nodes(said), A)
    expected = [(b"retry-after", b"2"), (b"www-authenticate", b"Bearer")]
    assert await site.run() == Answer(status, b"no", expected)
    assert site.doubted == []


async def test_when_the_owner_changed_the_new_one_is_asked() -> None:
    site = Site(Nodes(BUSY, DONE), A, B)
    assert await site.run() == Answer(200, b"{}", [])
    assert [each.url.host for each in site.nodes.asked] == [b"a.example", b"::1"]
    assert site.doubted == [SubscriptionId("s")]


@pytest.mark.parametrize("first", [BUSY, NotReached("no connection")])
async def test_what_nobody_owns_any_more_is_done_here(first: Response | Exception) -> None:
    site = Site(Nodes(first), A, b"done here")
    assert await site.run() == b"done here"


async def test_an_owner_that_is_busy_is_asked_once() -> None:
    site = Site(Nodes(BUSY), A, A)
    assert await site.run() == Answer(503, b"busy", [(b"retry-after", b"2")])


async def test_an_owner_that_cannot_be_reached_is_answered_as_such_until_its_time_is_over() -> None:
    site = Site(Nodes(NotReached("no")), A, A)
    with pytest.raises(OwnedElsewhere):
        await site.run()
    assert site.doubted == [SubscriptionId("s")]


async def test_owners_that_name_each_other_end_it() -> None:
    site = Site(Nodes(BUSY, BUSY), A, B, A)
    assert isinstance(await site.run(), Answer)


async def test_a_request_that_may_have_been_done_is_not_sent_again() -> None:
    site = Site(Nodes(RequestFailed("half an answer")), A)
    with pytest.raises(Unavailable, match=OUTCOME_UNKNOWN):
        await site.run()
    assert site.doubted == [SubscriptionId("s")]


@pytest.mark.parametrize(("owner", "headers"), [(A, [(MARK, b"forged")]), (SILENT, [])], ids=["marked", "no URL"])
async def test_what_is_not_forwarded_is_refused(owner: OwnedElsewhere, headers: list[tuple[bytes, bytes]]) -> None:
    site = Site(Nodes(), owner)
    with pytest.raises(OwnedElsewhere):
        await site.run(headers=headers)


async def test_no_large_answer_is_fetched_without_memory_for_it() -> None:
    site = Site(Nodes(), A)
    with site.unread.held("P", 2**20), pytest.raises(Overloaded):
        await site.forwarder.run(site.act, {"path": "/v1/projects/P/", "headers": []}, lambda: b"", most=2**20)


async def test_a_client_that_leaves_ends_the_request() -> None:
    ended = asyncio.Event()

    class Waiting(Nodes):
        async def ask(self, request: httpcore.Request) -> Response:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

    left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(Site(Waiting(), A).run(lambda: left))
    await asyncio.sleep(0)
    left.set_result(None)
    with pytest.raises(ClientLeft):
        await running
    await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS)
