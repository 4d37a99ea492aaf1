"""Forwarding to other nodes: which node, with which request, and the handling of its answer."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpcore
import pytest

from ams.cluster import ownership as forwarding
from ams.core.errors import OUTCOME_UNKNOWN, Overloaded, OwnedElsewhere, Unavailable
from ams.core.names import SubscriptionId
from ams.core.telemetry import REQUEST
from ams.http.forwarding import Forwarder, Relayed
from ams.http.limits import ClientLeft
from ams.outgoing.client import HttpClient, NotReached, RequestFailed, Response
from ams.service.delivery import UnreadAnswers
from tests.support.waiting import PATIENCE_SECONDS

NODE_MARK = forwarding.NODE_MARK.encode()
A = OwnedElsewhere(subscription="s", node="a", url="http://a.example:8080")
B = OwnedElsewhere(subscription="s", node="b", url="https://[::1]/")
NODE_WITHOUT_URL = OwnedElsewhere(subscription="s", node="a")
DONE_RESPONSE = Response(200, b"{}", ((b"Content-Type", b"application/json"), (b"X-Request-Id", b"theirs")))
BUSY_RESPONSE = Response(503, b"busy", ((b"Retry-After", b"2"),))


class ScriptedNodes(HttpClient):
    def __init__(self, *answers: Response | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[httpcore.Request] = []

    async def ask(self, request: httpcore.Request) -> Response:
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class ForwardingSite:
    def __init__(self, nodes: ScriptedNodes, *owners: OwnedElsewhere | bytes) -> None:
        self.nodes, self.owners, self.unread = nodes, list(owners), UnreadAnswers(2**20)
        self.doubted: list[str] = []
        self.forwarder = Forwarder(nodes, "me", self.doubted.append, self.unread)

    async def act(self) -> bytes:
        owner = self.owners.pop(0)
        if isinstance(owner, bytes):
            return owner
        raise owner

    async def run(self, left: Callable[[], asyncio.Future[None]] | None = None, **more: Any) -> bytes | Response:
        scope = {
            "method": "POST", "path": "/v1/projects/P/subscriptions/s:pull", "query_string": b"key=token&x=%2F",
            "headers": [(b"x-api-key", b"token"), (b"host", b"ams.example"), (b"content-type", b"application/json")],
            "client": ("10.0.0.1", 4711), **more,
        }  # fmt: skip
        try:
            return await self.forwarder.run(self.act, scope, lambda: b"body", left, most=100)
        except Relayed as refused:
            assert refused.answer.status != 200
            return refused.answer


async def test_a_request_goes_to_its_owner_as_it_came_and_its_answer_comes_back() -> None:
    REQUEST.set(b"the-id")
    site = ForwardingSite(ScriptedNodes(DONE_RESPONSE._replace(headers=((b"ETag", b'"7"'),))), A)
    headers = [
        (b"authorization", b"Bearer t"), (b"x-forwarded-for", b"192.0.2.7, 192.0.2.8"), (b"cookie", b"c"),
        (b"content-length", b"9"), (b"if-match", b'"7"'),
    ]  # fmt: skip
    assert await site.run(headers=headers) == Response(200, b"{}", [(b"etag", b'"7"')])

    (request,) = site.nodes.asked
    assert request.method == b"POST"
    assert bytes(request.url) == b"http://a.example:8080/v1/projects/P/subscriptions/s:pull?key=token&x=%2F"
    sent = {name.lower(): value for name, value in request.headers}
    del sent[b"user-agent"]
    assert sent == {
        b"host": b"a.example:8080", b"content-length": b"4", b"authorization": b"Bearer t", b"if-match": b'"7"',
        b"x-forwarded-for": b"192.0.2.7, 192.0.2.8, 10.0.0.1", b"x-request-id": b"the-id", NODE_MARK: b"me",
    }  # fmt: skip


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 412, 413, 429, 500])
async def test_a_refusal_of_the_owner_is_the_answer(status: int) -> None:
    said = Response(status, b"no", ((b"Retry-After", b"2"), (b"WWW-Authenticate", b"Bearer"), (b"Server", b"x")))
    site = ForwardingSite(ScriptedNodes(said), A)
    expected = [(b"retry-after", b"2"), (b"www-authenticate", b"Bearer")]
    assert await site.run() == Response(status, b"no", expected)
    assert site.doubted == []


NOT_REACHED = NotReached("no connection")
BUSY_ANSWER = Response(503, b"busy", [(b"retry-after", b"2")])


@pytest.mark.parametrize(("answers", "owners", "answer", "asked"), [
    ([], [b"done"], b"done", []),
    ([BUSY_RESPONSE, DONE_RESPONSE], [A, B], Response(200, b"{}", []), [b"a.example", b"::1"]),
    ([BUSY_RESPONSE], [A, b"done"], b"done", [b"a.example"]), ([NOT_REACHED], [A, b"done"], b"done", [b"a.example"]),
    ([BUSY_RESPONSE], [A, A], BUSY_ANSWER, [b"a.example"]),
    ([BUSY_RESPONSE, BUSY_RESPONSE], [A, B, A], BUSY_ANSWER, [b"a.example", b"::1"]),
], ids=["what this node does is asked nowhere", "when the owner changed the new one is asked",
        "what nobody owns any more is done here", "nor reaches", "an owner that is busy is asked once",
        "owners that name each other end it"])  # fmt: skip
async def test_whom_a_request_is_sent_to(
    answers: list[Response | Exception], owners: list[OwnedElsewhere | bytes], answer: object, asked: list[bytes]
) -> None:
    site = ForwardingSite(ScriptedNodes(*answers), *owners)
    assert await site.run() == answer
    assert [each.url.host for each in site.nodes.asked] == asked
    assert set(site.doubted) == ({SubscriptionId("s")} if asked else set())


@pytest.mark.parametrize(("answer", "owners", "error", "message"), [
    (NOT_REACHED, [A, A], OwnedElsewhere, None), (RequestFailed("half an answer"), [A], Unavailable, OUTCOME_UNKNOWN),
], ids=["an owner that cannot be reached", "what may have been done is not sent again"])  # fmt: skip
async def test_without_an_answer_of_the_owner_there_is_none(
    answer: Exception, owners: list[OwnedElsewhere], error: type[Exception], message: str | None
) -> None:
    site = ForwardingSite(ScriptedNodes(answer), *owners)
    with pytest.raises(error, match=message):
        await site.run()
    assert site.doubted == [SubscriptionId("s")]


@pytest.mark.parametrize(
    ("owner", "headers"), [(A, [(NODE_MARK, b"forged")]), (NODE_WITHOUT_URL, [])], ids=["marked", "no URL"]
)
async def test_what_is_not_forwarded_is_refused(owner: OwnedElsewhere, headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(OwnedElsewhere):
        await ForwardingSite(ScriptedNodes(), owner).run(headers=headers)


async def test_no_large_answer_is_fetched_without_memory_for_it() -> None:
    site = ForwardingSite(ScriptedNodes(), A)
    with site.unread.hold_answer("P", 2**20), pytest.raises(Overloaded):
        await site.forwarder.run(site.act, {"path": "/v1/projects/P/", "headers": []}, lambda: b"", most=2**20)


async def test_a_client_that_leaves_ends_the_request() -> None:
    ended = asyncio.Event()

    class WaitingNodes(ScriptedNodes):
        async def ask(self, request: httpcore.Request) -> Response:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

    left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(ForwardingSite(WaitingNodes(), A).run(lambda: left))
    await asyncio.sleep(0)
    left.set_result(None)
    with pytest.raises(ClientLeft):
        await running
    await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS)
