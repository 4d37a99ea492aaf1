"""The lane answers as the way over ASGI, however hot requests are written, and whatever rights change."""

import asyncio
import contextlib
import itertools
import random
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.fuzz.lane import Conversation, hold_conversation, rows
from tests.support.hot_packets import ACKNOWLEDGE, ALLOWED, ID, MESSAGE, NOW, PUBLISH, PULL, post_packet, table
from tests.support.packets import cuts
from tests.support.schedulers import AllWaits
from tests.support.two_ways import TwoWays, one_way, request, two_ways

REQUESTS = table()


@pytest.fixture
async def ways(tmp_path: Path) -> AsyncIterator[TwoWays]:
    async with two_ways(tmp_path, user_requests_per_second=10**6) as opened:
        yield opened


@pytest.mark.parametrize("part", range(4))
async def test_each_request_is_answered_alike_cold_and_warm(ways: TwoWays, part: int) -> None:
    for name in list(REQUESTS)[part::4]:
        packet = REQUESTS[name]
        ways.forget_heads()
        first = await ways.same([packet])
        assert first.startswith(b"HTTP/1.1 ") or not first, name
        await ways.same([packet])
        await ways.same([packet, packet])
    assert ways.lane.on_lane > 20
    await ways.check_content()


async def test_hot_requests_cut_anywhere_are_answered_alike(ways: TwoWays) -> None:
    """A sample of the cuts; `make fuzz-packets` makes all."""
    chosen = random.Random(3)
    for name in chosen.sample(list(REQUESTS), 40):
        for packets in chosen.sample(list(cuts(REQUESTS[name])), 5):
            await hold_conversation(
                ways, Conversation(packets, is_cold=chosen.random() < 0.2, is_slow=chosen.random() < 0.5)
            )
    await ways.check_content()


async def test_rows_of_requests_cut_anywhere_are_answered_alike(ways: TwoWays) -> None:
    for conversation in itertools.islice(rows(seed=5), 150):
        await hold_conversation(ways, conversation)
    assert ways.lane.on_lane > 20
    await ways.check_content()


async def test_rows_of_requests_that_wait_for_their_turns_are_answered_alike(tmp_path: Path) -> None:
    async with (one_way(tmp_path / "lane", lane=True, user_requests_per_second=10**6, scheduler=AllWaits()) as lane,
                one_way(tmp_path / "asgi", lane=False, user_requests_per_second=10**6) as asgi):  # fmt: skip
        ways = TwoWays(lane, asgi)
        for conversation in itertools.islice(rows(seed=11), 100):
            await hold_conversation(ways, conversation)
        assert lane.on_lane > 20
        await ways.check_content()


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.postgres
async def test_requests_are_answered_alike_on_kafka_and_postgresql(tmp_path: Path) -> None:
    async with two_ways(tmp_path, is_cluster=True, user_requests_per_second=10**6) as ways:
        for name, packet in REQUESTS.items():
            answered = await ways.same([packet, packet])
            assert answered.startswith(b"HTTP/1.1 ") or not answered, name
        for conversation in itertools.islice(rows(seed=7), 60):
            await hold_conversation(ways, conversation)
        assert ways.lane.on_lane > 20
        await ways.check_content()


# Rights

HOT_REQUESTS = [
    (PUBLISH, MESSAGE), (PUBLISH, b'{"messages":[{"data":"%b"}]}' % ALLOWED), (PULL, NOW), (ACKNOWLEDGE, ID),
]  # fmt: skip
_TOKEN_MADE = re.compile(rb'"token":"([!-~]+?)"')
_FURNITURE = (("POST", "/projects/P", "{}"), ("PUT", "/projects/P/topics/T", ""),
              ("PUT", "/projects/P/subscriptions/S", '{"topic":"projects/P/topics/T"}'))  # fmt: skip
roles = st.sets(st.sampled_from(("publisher", "consumer", "project_admin")), max_size=2)
users = st.sampled_from(("ann", "bob"))
lifetimes = st.integers(60, 120)


class Rights(RuleBasedStateMachine):
    """The same changes in two services, and the same requests to both after each."""

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._stack = contextlib.AsyncExitStack()
        self._folder = tempfile.TemporaryDirectory()
        self._tokens: list[bytes] = []
        """Placeholders in requests for tokens that were made; most of the tokens are revoked."""
        self.ways: TwoWays

    def teardown(self) -> None:
        self._runner.run(self._stack.aclose())
        self._runner.close()
        self._folder.cleanup()

    @initialize()
    def open(self) -> None:
        self.ways = self._runner.run(self._stack.enter_async_context(two_ways(Path(self._folder.name))))
        self.make_user("ann", {"publisher", "consumer"})
        self.list_users({"ann"}, "topics/T")
        self.list_users({"ann"}, "subscriptions/S")

    def _send_to_both(self, method: str, path: str, body: str = "") -> None:
        """Send a request to both services as an administrator; a token that it makes is used from then on."""

        async def ask() -> None:
            asked = request(method, path, body)
            answers = [(await way.send_packets([asked]))[0] for way in (self.ways.lane, self.ways.asgi)]
            assert answers[0][:12] == answers[1][:12], (asked, answers)
            made = [_TOKEN_MADE.search(answer) for answer in answers]
            if made[0] and made[1] and made[0][1] not in self._tokens:
                name = b"<token %d>" % len(self._tokens)
                name = name.ljust(len(made[0][1]), b".")
                self._tokens.append(name)
                for way, each in zip((self.ways.lane, self.ways.asgi), made, strict=True):
                    assert each
                    way.tokens[name] = each[1]

        self._runner.run(ask())

    @rule(name=users, roles=roles)
    def make_user(self, name: str, roles: set[str]) -> None:
        self._send_to_both("POST", f"/users/{name}", _roles(roles))

    @rule(name=users, roles=roles)
    def change_roles(self, name: str, roles: set[str]) -> None:
        self._send_to_both("PUT", f"/users/{name}", _roles(roles))

    @rule(name=users)
    def delete_user(self, name: str) -> None:
        self._send_to_both("DELETE", f"/users/{name}")

    @rule(name=users)
    def refresh_token(self, name: str) -> None:
        self._send_to_both("POST", f"/users/{name}:refreshToken")

    @rule(name=users, action=st.sampled_from(["topics:publish", "subscriptions:pull", "*"]), seconds=lifetimes)
    def make_token(self, name: str, action: str, seconds: int) -> None:
        rights = "" if action == "*" else f',"rights":[{{"action":"{action}","resource":"projects/P/*"}}]'
        self._send_to_both("POST", f"/users/{name}/tokens/t{seconds % 3}", f'{{"expires_in":{seconds}{rights}}}')

    @rule(name=users, number=st.integers(0, 2))
    def revoke_token(self, name: str, number: int) -> None:
        self._send_to_both("DELETE", f"/users/{name}/tokens/t{number}")

    @rule(names=st.sets(users), what=st.sampled_from(["topics/T", "subscriptions/S"]))
    def list_users(self, names: set[str], what: str) -> None:
        listed = ",".join(f'"{name}"' for name in sorted(names))
        self._send_to_both("POST", f"/projects/P/{what}:modifyAcl", f'{{"authorized_users":[{listed}]}}')

    @rule(number=st.integers(0, 2))
    def make_again(self, number: int) -> None:
        """Delete a resource, and create it again under the same name."""
        self._send_to_both("DELETE", _FURNITURE[number][1])
        for method, path, body in _FURNITURE[number:]:
            self._send_to_both(method, path, body)

    @rule(what=st.sampled_from(["/projects/P/topics/T", "/projects/P/subscriptions/S"]))
    def delete(self, what: str) -> None:
        self._send_to_both("DELETE", what)

    @rule(url=st.sampled_from(["", "https://receiver.example/in"]))
    def change_push(self, url: str) -> None:
        config = f'{{"pushConfig":{{"pushEndpoint":"{url}"}}}}' if url else '{"pushConfig":{}}'
        self._send_to_both("POST", "/projects/P/subscriptions/S:modifyPushConfig", config)

    @rule(is_attached=st.booleans())
    def change_schema(self, is_attached: bool) -> None:
        """Attach a schema to the topic, or detach it; in the same step it may get a new revision."""
        required = "name" if is_attached else "other"
        schema = f'{{"type":"json","schema":{{"type":"object","required":["{required}"]}}}}'
        self._send_to_both("POST", "/projects/P/schemas/X", schema)
        self._send_to_both("PUT", "/projects/P/schemas/X", schema)
        verb, body = ("attach", '{"schema":"projects/P/schemas/X"}') if is_attached else ("detach", "")
        self._send_to_both("POST", f"/projects/P/topics/T:{verb}Schema", body)

    @rule()
    def revise_schema(self) -> None:
        schema = '{"type":"json","schema":{"type":"object","required":["name","age"]}}'
        self._send_to_both("PUT", "/projects/P/schemas/X", schema)

    @rule(seconds=st.integers(1, 70))
    def let_time_pass(self, seconds: int) -> None:
        for way in (self.ways.lane, self.ways.asgi):
            way.clock.advance(seconds * 1000)

    @invariant()
    def both_let_in_the_same(self) -> None:
        """Check a request on a cached head, if it was admitted before, and again at once."""

        async def ask() -> None:
            for token in self._tokens[-4:]:
                for target, body in HOT_REQUESTS:
                    for header in (b"x-api-key: %b\r\n", b"Authorization: Bearer %b\r\n"):
                        packet = post_packet(target, body, header % token)
                        await self.ways.same([packet, packet], slowly=True)

        if hasattr(self, "ways"):
            self._runner.run(ask())


def _roles(roles: set[str]) -> str:
    listed = ",".join(f'"{role}"' for role in sorted(roles))
    return f'{{"projects":[{{"project":"P","roles":[{listed}]}}]}}'


RightsTest: Any = Rights.TestCase
RightsTest.settings = settings(max_examples=2, stateful_step_count=10, deadline=None)


@pytest.mark.long
class TestManyRights(RightsTest):
    settings = settings(max_examples=8, stateful_step_count=15, deadline=None)
