"""Live views: contents, timing, access, ends, costs, and the encoding of events."""

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.app.lifecycle import RunningService
from ams.core.clock import Milliseconds
from ams.core.errors import NotAllowed, TopicGone
from ams.core.messages import Stored, message
from ams.core.names import Offset
from ams.http.routes.reading import events
from ams.service import live_views
from ams.wire.service import Counts
from tests.support.events import read_events
from tests.support.loop_time import pass_loop_time
from tests.support.served import InProcessService
from tests.support.service import running_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async


class View:
    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def event(self) -> tuple[str, Any]:
        """Return the next event; "" as its name at the end of the stream."""
        block = ""
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for line in self._lines:
                block += f"{line}\n"
                for name, data in read_events(block.encode()):
                    return name, json.loads(data)
        return "", None

    async def until(self, name: str) -> Any:
        while True:
            found, said = await self.event()
            assert found, f"the stream ended before {name}"
            if found == name:
                return said

    async def counts(self, condition: Callable[[Any], bool]) -> Any:
        while not condition(said := await self.until("counts")):
            pass
        return said


class Client:
    """A client of a service, with a topic `t` and a subscription `s` in a project of its own, `$P`."""

    def __init__(self, run: RunningService, token: str, project: str) -> None:
        self.run, self.token, self.project = run, token, project
        self.http = httpx.AsyncClient(base_url=run.base_url, trust_env=False, timeout=PATIENCE_SECONDS)

    async def ask(self, method: str, path: str, body: object = None, token: str = "") -> Any:
        said = json.dumps(body).replace("$P", self.project) if body is not None else ""
        headers = {"x-api-key": token or self.token}
        answer = await self.http.request(method, self.at(path), content=said, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json() if answer.content else None

    def at(self, path: str) -> str:
        return "/v1" + path.replace("$P", self.project)

    async def publish(self, count: int = 1, topic: str = "t", **fields: object) -> None:
        messages = [{"data": "aGk=", **fields} for _ in range(count)]
        await self.ask("POST", f"/projects/$P/topics/{topic}:publish", {"messages": messages})

    async def member(self, name: str, *roles: str, **lists: str) -> str:
        body = {"projects": [{"project": "$P", "roles": list(roles)}]}
        token: str = (await self.ask("POST", f"/users/$P-{name}", body))["token"]
        for kind, resource in lists.items():
            await self.ask("POST", f"/projects/$P/{kind}/{resource}:modifyAcl", {"authorized_users": [f"$P-{name}"]})
        return token

    async def get_refusal(self, query: str, token: str = "") -> tuple[int, str]:
        answer = await self.http.get(self.at(f"/projects/$P:watch?{query}"), headers={"x-api-key": token or self.token})
        return answer.status_code, answer.json()["error"]["message"]

    @contextlib.asynccontextmanager
    async def view(self, query: str, token: str = "") -> AsyncIterator[View]:
        headers = {"x-api-key": token or self.token}
        async with self.http.stream("GET", self.at(f"/projects/$P:watch?{query}"), headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            yield View(answer)

    @property
    def views(self) -> int:
        return self.run.service.live.views


_number = itertools.count(1)


@contextlib.asynccontextmanager
async def open_client(run: RunningService, token: str) -> AsyncIterator[Client]:
    client = Client(run, token, f"watched-{next(_number)}")
    async with client.http:
        await client.ask("POST", "/projects/$P", {})
        await client.ask("PUT", "/projects/$P/topics/t")
        await client.ask("PUT", "/projects/$P/subscriptions/s", {"topic": "projects/$P/topics/t"})
        yield client


@pytest.fixture
async def client(service: InProcessService) -> AsyncIterator[Client]:
    async with open_client(service.run, service.token) as client:
        yield client
        await wait_until_async(lambda: client.views == 0)
        unread = client.run.service.deliverer.unread
        assert unread.room(client.project) == unread.capacity


async def test_counts_come_at_once_and_again_when_the_log_grows(client: Client, monkeypatch) -> None:
    monkeypatch.setattr(live_views, "LOOK_SECONDS", 600.0)  # so that only the log can wake it
    async with client.view("topics=t&subscriptions=s") as view:
        first = await view.until("counts")
        await client.publish(3)
        after = await view.counts(lambda said: said["topics"]["t"]["messages"] == 3)

    assert view.answer.headers["content-type"] == "text/event-stream"
    assert view.answer.headers["cache-control"] == "no-store"
    assert first["topics"] == {"t": {"messages": 0, "bytes": 0}}
    assert first["subscriptions"] == {"s": {"current": 0, "end": 0, "lag": 0}}
    assert after["topics"]["t"]["bytes"] == 12
    stands = after["subscriptions"]["s"]
    assert (stands["current"], stands["end"], stands["lag"]) == (0, 3, 3)
    assert stands["oldestUnackedSeconds"] >= 0


async def test_subscriptions_are_counted_after_an_acknowledgement_on_lease_and_without_their_topic(client: Client):
    await client.ask("PUT", "/projects/$P/subscriptions/p", {"topic": "projects/$P/topics/t", "type": "parallel"})
    await client.publish(3)
    async with client.view("subscriptions=s,p") as view:
        await view.counts(lambda said: said["subscriptions"]["s"]["lag"] == 3)
        await client.ask("POST", "/projects/$P/subscriptions/p:pull", {"maxMessages": "2"})
        found = await client.ask("POST", "/projects/$P/subscriptions/s:pull", {"maxMessages": "3"})
        ids = [each["ackId"] for each in found["receivedMessages"]]
        await client.ask("POST", "/projects/$P/subscriptions/s:acknowledge", {"ackIds": ids})

        after = await view.counts(lambda said: said["subscriptions"]["s"]["lag"] == 0)
        leased = after["subscriptions"]["p"]
        assert (leased["lag"], leased["outstanding"]) == (3, 2)
        await client.ask("DELETE", "/projects/$P/topics/t")
        await view.counts(lambda said: said["subscriptions"]["s"] == {"current": 0, "end": 0, "lag": 0})


async def test_a_tail_begins_at_the_end_and_shows_messages_of_its_filter_as_a_pull_does(client: Client) -> None:
    await client.publish(5, attributes={"lang": "en"})
    async with client.view('tail=t&filter=attributes.lang%20%3D%20"en"') as view:
        await view.until("counts")
        await client.publish(attributes={"lang": "fr"})
        await client.publish(attributes={"lang": "en"})
        said = await view.until("message")

    assert said["offset"] == 6
    assert said["message"].pop("publishTime").endswith("Z")
    assert said["message"] == {"messageId": "6", "attributes": {"lang": "en"}, "data": "aGk="}


async def test_a_tail_that_comes_too_fast_shows_the_newest_and_counts_the_others(client: Client) -> None:
    async with client.view("tail=t") as view:
        await view.until("counts")
        await client.publish(700)
        name, said = await view.event()
        shown = [await view.until("message") for _ in range(200)]

    assert (name, said) == ("skipped", {"messages": 500})
    assert [each["offset"] for each in shown] == list(range(500, 700))


async def test_large_messages_come_a_piece_at_a_time_and_none_is_lost(client: Client) -> None:
    async with client.view("tail=t") as view:
        await view.until("counts")
        for _ in range(4):
            await client.publish(data="A" * 800_000)

        assert [(await view.event())[1].get("offset") for _ in range(4)] == [0, 1, 2, 3]


async def test_members_watch_what_they_may_use_and_nothing_else(client: Client) -> None:
    await client.ask("PUT", "/projects/$P/topics/other")
    await client.ask("PUT", "/projects/$P/subscriptions/o", {"topic": "projects/$P/topics/other"})
    publisher = await client.member("pub", "publisher", topics="t")
    consumer = await client.member("con", "consumer", subscriptions="s")
    forbidden = (403, "Access to this resource is forbidden")

    async with client.view("topics=t", publisher) as view:
        assert "t" in (await view.until("counts"))["topics"]
    async with client.view("subscriptions=s&tail=t", consumer) as view:
        assert "s" in (await view.until("counts"))["subscriptions"]

    for query in ("topics=other", "topics=t,other", "subscriptions=s", "tail=t"):
        assert await client.get_refusal(query, publisher) == forbidden, query
    for query in ("subscriptions=o", "subscriptions=s,o", "topics=t", "tail=t", "tail=other&subscriptions=s"):
        assert await client.get_refusal(query, consumer) == forbidden, query


async def test_a_token_with_fewer_rights_watches_what_they_name(client: Client) -> None:
    await client.ask("PUT", "/projects/$P/topics/other")
    await client.ask("POST", "/users/$P-adm", {"projects": [{"project": "$P", "roles": ["project_admin"]}]})
    watch = {"action": "projects:watch", "resource": "projects/$P"}
    rights = [watch, {"action": "topics:metrics", "resource": "projects/$P/topics/t"}]
    named = await client.ask("POST", "/users/$P-adm/tokens/eyes", {"rights": rights})

    async with client.view("topics=t", named["token"]) as view:
        await view.until("counts")
    assert await client.get_refusal("topics=other", named["token"]) == (403, "The token is not good for this")
    assert await client.get_refusal("tail=t", named["token"]) == (403, "The token is not good for this")


ENDS: dict[str, tuple[tuple[Any, ...], int]] = {
    "the user": (("DELETE", "/users/$P-who"), 401),
    "the right": (("POST", "/projects/$P/topics/t:modifyAcl", {"authorized_users": []}), 403),
    "the topic": (("DELETE", "/projects/$P/topics/t"), 404), "the project": (("DELETE", "/projects/$P"), 404),
}  # fmt: skip


@pytest.mark.parametrize(("ending", "code"), ENDS.values(), ids=ENDS)
async def test_a_view_ends_with_what_it_stands_on(client: Client, ending: tuple[Any, ...], code: int) -> None:
    token = await client.member("who", "publisher", topics="t")
    async with client.view("topics=t", token) as view:
        await view.until("counts")
        await client.ask(*ending)
        said = await view.until("end")

        assert said["code"] == code
        assert said["reason"]
        assert await view.event() == ("", None)
    assert client.views == 0


async def test_rights_that_did_not_change_are_checked_again(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token expires by time alone; no node gets a notice."""
    look_up, looks = live_views.Live._look_up, itertools.count()

    async def look(*given: Any) -> live_views.ViewResources:
        if next(looks) == 2:
            raise NotAllowed
        return await look_up(*given)

    monkeypatch.setattr(live_views.Live, "_look_up", look)
    monkeypatch.setattr(live_views, "RIGHTS_SECONDS", 0.01)
    monkeypatch.setattr(live_views, "LOOK_SECONDS", 0.01)
    async with client.view("topics=t") as view:
        assert (await view.until("end"))["code"] == 403


async def test_nothing_is_shown_that_came_after_the_token_was_revoked(client: Client) -> None:
    token = await client.member("who", "project_admin")
    async with client.view("tail=t", token) as view:
        await view.until("counts")
        await client.ask("DELETE", "/users/$P-who")
        await client.publish()
        names = []
        while (event := await view.event())[0]:
            names.append(event[0])

    assert names == ["end"]


async def test_a_stop_ends_views(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with running_service(tmp_path / "ams-data") as (run, token):
            client = await stack.enter_async_context(open_client(run, token))
            view = await stack.enter_async_context(client.view("topics=t"))
            await view.until("counts")
            ended = asyncio.ensure_future(view.until("end"))

        assert await ended == {"reason": "The service is stopping", "code": 503}


async def test_a_user_has_only_so_many_views(client: Client, monkeypatch) -> None:
    monkeypatch.setattr(live_views, "MOST_VIEWS", 1)
    other = await client.member("other", "project_admin")
    async with client.view("topics=t") as view:
        await view.until("counts")

        assert await client.get_refusal("topics=t") == (429, "A user may have 1 event streams at a time")
        async with client.view("topics=t", other) as another:
            await another.until("counts")


async def test_a_client_that_does_not_read_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_service(tmp_path / "ams-data") as (run, token), open_client(run, token) as client:
        with _connect_deaf(client, client.at("/projects/$P:watch?tail=t")) as deaf:
            await asyncio.get_running_loop().sock_recv(deaf, 100)
            read = _counted_reads(run.service.log)
            for _ in range(12):
                await client.publish(data="A" * 1_000_000)
                await asyncio.sleep(0.05)

            pass_loop_time(monkeypatch, PATIENCE_SECONDS)

            await wait_until_async(lambda: client.views == 0)
        assert sum(read) < 8_000_000


@contextlib.contextmanager
def _connect_deaf(client: Client, path: str):
    """Request a view on a socket that reads almost nothing."""
    host, port = client.run.base_url.removeprefix("http://").split(":")
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((host, int(port)))
        deaf.sendall(f"GET {path} HTTP/1.1\r\nhost: x\r\nx-api-key: {client.token}\r\n\r\n".encode())
        deaf.setblocking(False)
        yield deaf


def _counted_reads(log) -> list[int]:
    """Return a list that collects the sizes of all later reads of the log."""
    real, read = log.read, []

    async def count_bytes(*arguments, **more):
        found = await real(*arguments, **more)
        read.append(sum(len(each.fragment) for each in found))
        return found

    log.read = count_bytes
    return read


# Encoding of events

TEXTS = st.text(max_size=30) | st.sampled_from(
    ["\n\n", "\r", "\r\n", "data: x", "\u2028", "\nevent: end\ndata: {}\n\n"]
)
COUNTS = Counts("2024-03-05T10:20:30.123Z", {}, {})


async def write_events(*seen: Counts | live_views.Tail | Exception | None) -> bytes:
    async def view() -> AsyncGenerator[Counts | live_views.Tail | None]:
        for each in seen:
            if isinstance(each, Exception):
                raise each
            yield each

    return b"".join([each async for each in events(view())])


@given(
    st.lists(st.tuples(TEXTS, st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=3)), max_size=5), st.integers(0, 9)
)
async def test_messages_come_out_as_they_went_in(sent: Sequence[tuple[str, dict[str, str]]], skipped: int) -> None:
    stored = [
        Stored(Offset(7 + number), Milliseconds(1_700_000_000_000), message(data, attributes).fragment)
        for number, (data, attributes) in enumerate(sent)
    ]

    found = read_events(await write_events(live_views.Tail(stored, skipped)))

    said = [json.loads(data) for name, data in found if name == "skipped"]
    assert said == ([{"messages": skipped}] if skipped else [])
    shown = [json.loads(data) for name, data in found if name == "message"]
    assert len(shown) + len(said) == len(found)
    assert [each["offset"] for each in shown] == [each.offset for each in stored]
    assert [each["message"]["messageId"] for each in shown] == [str(each.offset) for each in stored]
    assert [(each["message"]["data"], each["message"].get("attributes", {})) for each in shown] == list(sent)


async def test_a_comment_comes_only_after_a_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await write_events(COUNTS, None, None)).count(b":\n\n") == 0
    monkeypatch.setattr("ams.http.routes.reading.SILENCE", 0)
    assert (await write_events(COUNTS, None, None)).endswith(b"\n\n:\n\n:\n\n")


async def test_what_ends_a_view_is_its_last_event_and_what_refuses_it_is_raised() -> None:
    found = read_events(await write_events(COUNTS, TopicGone()))

    assert [name for name, _ in found] == ["counts", "end"]
    assert json.loads(found[-1][1]) == {"reason": "Topic doesn't exist", "code": 404}
    with pytest.raises(TopicGone):
        await write_events(TopicGone())
