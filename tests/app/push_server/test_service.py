"""Our push server by its wire: push contract 3 and 4 by field numbers, and its access control (P22)."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import AsyncMock

import grpc
import pytest
from grpc_health.v1 import health_pb2

from ams.app.push_server.selection import NO_WORKER_TEXT, OK, ByActivation, Condition, Follower
from ams.app.push_server.service import AccessList, PushService, listening
from ams.app.push_server.settings import PushSettings
from ams.client import AsyncClient
from ams.core.errors import BadSettings
from ams.core.push_config import PushConfig
from ams.core.supervisor import Supervisor
from ams.push.report import RETRYING
from ams.push.upstream import Target
from ams.wire.push import Failure, WorkerState
from tests.app.push_server.keepers import TargetTable
from tests.support.certificates import Authority, Pair
from tests.support.http2_pings import ping
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.wire_bytes import Value, call, encode_fields

PATH = "/projects/p/subscriptions/s"
ACTIVATE, DEACTIVATE = "/PushService/ActivateSubscription", "/PushService/DeactivateSubscription"
LOOK, STATUS = "/PushService/SubscriptionStatus", "/PushService/Status"
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
UNABLE = "The push service is currently unable to handle any requests"
PLAIN = PushSettings(endpoint="http://127.0.0.1:1", token="x", port=0, tls_enabled=False)

CONFIG: dict[int, Value] = {1: "https://example.com/in", 2: [(1, "linear"), (2, 300)], 3: 2, 4: "secret"}


def activation(path: str = PATH, **changes: Value | None) -> bytes:
    """Encode an activation with other fields in its push configuration, `_N=value`, or without some, `_N=None`."""
    config = CONFIG | {int(name[1:]): value for name, value in changes.items()}
    fields = [(number, value) for number, value in config.items() if value is not None]
    return encode_fields((1, [(1, path), (2, "/projects/p/topics/t"), (4, fields)]))


@dataclass
class Server:
    channel: grpc.aio.Channel
    table: TargetTable
    condition: Condition

    async def ask(self, path: str, request: bytes = b"") -> tuple[str, str]:
        return await call(self.channel, path, request)


@pytest.fixture
async def push_server() -> AsyncIterator[Server]:
    async with serve_table(Condition(OK)) as server:
        yield server


@contextlib.asynccontextmanager
async def serve_table(condition: Condition) -> AsyncIterator[Server]:
    table = TargetTable()
    async with listening(PLAIN, StatefulTable(table), condition) as address:
        yield Server(grpc.aio.insecure_channel(address), table, condition)


class StatefulTable:
    def __init__(self, table: TargetTable) -> None:
        self.workers, self.way = table, ByActivation(table)


async def test_an_activation_is_read_by_its_field_numbers(push_server: Server) -> None:
    assert await push_server.ask(ACTIVATE, activation(_9=1)) == ("OK", f"Subscription {PATH} activated")

    config = PushConfig(
        "http_endpoint", endpoint="https://example.com/in", max_messages=2, header_type="autogen",
        header_value="secret", retry_policy="linear", retry_period=300, verified=True, base64_decode=True,
    )  # fmt: skip
    assert push_server.table.targets == {PATH: Target(PATH, "/projects/p/topics/t", config, 10)}


async def test_a_mattermost_activation_is_read_by_its_field_numbers(push_server: Server) -> None:
    said = activation(_1=None, _4=None, _5=1, _6="https://chat.example/hooks/x", _7="ams", _8="town-square")

    assert await push_server.ask(ACTIVATE, said) == ("OK", f"Subscription {PATH} activated")
    config = push_server.table.targets[PATH].config
    assert (config.type, config.mattermost_url, config.mattermost_username, config.mattermost_channel) == (
        "mattermost", "https://chat.example/hooks/x", "ams", "town-square",
    )  # fmt: skip
    assert config.max_messages == 1


@pytest.mark.parametrize(("request_", "text"), [
    (b"", "Empty subscription"),
    (encode_fields((1, [(1, PATH)])), "Empty subscription"),
    (activation(_2=None), "Empty subscription"),
    (activation(_1=None), 'Invalid push endpoint, parse "": empty url'),
    (activation(_1="example"), 'Invalid push endpoint, parse "example": invalid URI for request'),
    (
        activation(_1="http://example.com"),
        'Invalid push endpoint, parse "http://example.com": not an absolute https URL with a host',
    ),
    (activation(_1="https://user:s3cret@a.example"), "Invalid push endpoint, it has a user and password in it"),
    (activation(_1="http://user:s3cret@[a"), "Invalid push endpoint, it has a user and password in it"),
    (
        activation(_5=1, _6="https://user:s3cret@a.example"),
        "Invalid mattermost url, it has a user and password in it",
    ),
    (activation(_2=[(1, "sometimes")]), "Invalid argument, worker sometimes not yet implemented"),
    (activation(_5=7), "Invalid argument, push type 7 not yet implemented"),
    (activation(_3=-1), "Invalid argument, max_messages must be between 1 and 10000"),
    (activation(_3=10_001), "Invalid argument, max_messages must be between 1 and 10000"),
    (activation("s"), "Invalid subscription, 's'"),
    (activation(_5=1, _6=""), "Invalid mattermost url, it is empty"),
])  # fmt: skip
async def test_a_bad_activation_is_refused_and_changes_nothing(push_server: Server, request_: bytes, text: str) -> None:
    assert await push_server.ask(ACTIVATE, request_) == ("INVALID_ARGUMENT", text)
    assert push_server.table.targets == {}


async def test_a_count_and_a_period_of_0_are_the_defaults(push_server: Server) -> None:
    await push_server.ask(ACTIVATE, activation(_3=None, _2=[(1, "linear")]))
    assert (
        push_server.table.targets[PATH].config.max_messages, push_server.table.targets[PATH].config.retry_period,
    ) == (1, 3000)  # fmt: skip


async def test_an_active_subscription_is_activated_once_and_a_deactivated_one_is_unknown(push_server: Server) -> None:
    await push_server.ask(ACTIVATE, activation())
    told = await push_server.ask(ACTIVATE, activation(_1="nonsense"))
    assert told == ("ALREADY_EXISTS", f"Subscription {PATH} is already activated")

    assert await push_server.ask(DEACTIVATE, encode_fields((1, PATH))) == ("OK", f"Subscription {PATH} deactivated")
    unknown = ("NOT_FOUND", f"Subscription {PATH} is not active")
    assert await push_server.ask(DEACTIVATE, encode_fields((1, PATH))) == unknown
    assert await push_server.ask(LOOK, encode_fields((1, PATH))) == unknown


async def test_the_status_of_a_subscription_tells_what_is_wrong_now(push_server: Server) -> None:
    await push_server.ask(ACTIVATE, activation())
    assert await push_server.ask(LOOK, encode_fields((1, PATH))) == ("OK", f"Subscription {PATH} is currently active")
    push_server.table.states[PATH] = WorkerState(phase=RETRYING, failure=Failure(1_738_318_820_999, "send", "teapot"))
    assert await push_server.ask(LOOK, encode_fields((1, PATH))) == (
        "OK", "2025-01-31T10:20:20 - Could not send message, teapot",
    )  # fmt: skip


async def test_a_server_that_works_says_so(push_server: Server) -> None:
    assert await push_server.ask(STATUS) == ("OK", "")
    assert await push_server.ask(CHECK) == ("OK", "1")
    assert await push_server.ask(CHECK, encode_fields((1, "other"))) == ("NOT_FOUND", "unknown service")


@pytest.mark.parametrize("path", [ACTIVATE, DEACTIVATE, LOOK, CHECK])
async def test_a_server_that_starts_answers_nothing_but_its_state(path: str) -> None:
    async with serve_table(Condition()) as server:
        assert await server.ask(path, activation()) == ("INTERNAL", UNABLE)
        assert await server.ask(STATUS) == ("INTERNAL", f"{UNABLE}.")

        server.condition.note_failure()
        assert await server.ask(STATUS) == ("INTERNAL", f"{UNABLE}.{NO_WORKER_TEXT}")

        server.condition.note_success()
        assert await server.ask(STATUS) == ("OK", "")


async def test_a_change_while_a_watch_sends_its_answer_is_sent_next() -> None:
    condition = Condition(OK)
    request, context = health_pb2.HealthCheckRequest(), AsyncMock()
    watching = PushService(AsyncMock(), condition).watch(request, context)

    first = await anext(watching)
    for _ in range(3):
        condition.note_failure()
    second = await asyncio.wait_for(anext(watching), 60)

    assert [first.status, second.status] == [1, 2]


async def test_a_watch_gets_every_change(push_server: Server) -> None:
    watching = push_server.channel.unary_stream(WATCH)(b"", timeout=60)
    seen = [await watching.read()]
    for _ in range(3):
        push_server.condition.note_failure()
    seen.append(await watching.read())
    watching.cancel()

    assert seen == [encode_fields((1, 1)), encode_fields((1, 2))]


async def test_bytes_that_are_no_message_do_no_harm(push_server: Server) -> None:
    assert await push_server.ask(ACTIVATE, b"\xff\xff\xff") == ("INVALID_ARGUMENT", "The request cannot be read")
    assert await push_server.ask(STATUS) == ("OK", "")


@pytest.mark.long
async def test_a_service_that_pings_every_ten_seconds_stays() -> None:
    async with listening(PLAIN, StatefulTable(TargetTable()), Condition(OK)) as address:
        await ping(address)


async def test_p1_with_nothing_to_load_the_server_is_usable_at_once() -> None:
    table = TargetTable()
    async with AsyncClient("http://127.0.0.1:1", "x", retry=None) as client:
        follower = Follower(client, table, Condition(OK), random=random.Random(1), loads=False)
        async with listening(PLAIN, follower, Condition(OK)) as address:
            await follower.start(Supervisor())
            channel = grpc.aio.insecure_channel(address)

            assert await call(channel, ACTIVATE, activation()) == ("OK", f"Subscription {PATH} activated")
            assert list(table.targets) == [PATH]
            await channel.close()
        await follower.stop(1)
    assert table.stops == [1]


# Access control: TLS, client certificates, and the access list by either kind of name (P22)

JANE = (("C", "GR"), ("O", "Acme"), ("CN", "ams.example.com"))


@contextlib.asynccontextmanager
async def serve_with_acl(authority: Authority, acl: Sequence[str]) -> AsyncIterator[str]:
    pair = authority.signs("server", hosts=["127.0.0.1"])
    settings = PushSettings(
        endpoint="http://127.0.0.1:1", token="x", port=0, cert=pair.chain, key=pair.key, acl=tuple(acl),
        certificate_authorities_dir=str(authority.folder),
    )  # fmt: skip
    async with listening(settings, StatefulTable(TargetTable()), Condition(OK)) as address:
        yield address


def channel(address: str, authority: Authority, shown: Pair | None) -> grpc.aio.Channel:
    keys = (shown.key_pem, shown.pem) if shown else (None, None)
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority.pair.pem, *keys))


@pytest.mark.parametrize(("acl", "code"), [
    (["ams.example.com"], "OK"), (["AMS.example.com"], "UNAUTHENTICATED"), (["other", "ams.example.com"], "OK"),
    (["/C=GR/O=Acme/CN=ams.example.com"], "OK"), (["CN=ams.example.com,O=Acme,C=GR"], "OK"),
    (["C = GR, O = Acme, CN = ams.example.com"], "OK"), (["CN=ams.example.com,O=Other,C=GR"], "UNAUTHENTICATED"),
    (["CN=ams.example.com"], "UNAUTHENTICATED"), ([], "UNAUTHENTICATED"),
])  # fmt: skip
async def test_p22_a_client_is_let_in_by_common_or_whole_name(authority: Authority, acl: list[str], code: str) -> None:
    client = authority.signs("client", *JANE)
    async with serve_with_acl(authority, acl) as address, channel(address, authority, client) as connection:
        found = await call(connection, STATUS)
    assert found == (code, "UNAUTHORISED" if code != "OK" else "")


async def test_p22_health_is_told_to_nobody_else_either(authority: Authority) -> None:
    client = authority.signs("client", *JANE)
    async with serve_with_acl(authority, ["somebody"]) as address, channel(address, authority, client) as connection:
        assert await call(connection, CHECK) == ("UNAUTHENTICATED", "UNAUTHORISED")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await connection.unary_stream(WATCH)(b"", timeout=PATIENCE_SECONDS).read()

    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("client", ["none", "of another authority"])
async def test_without_a_good_certificate_nobody_connects(authority: Authority, tmp_path: Path, client: str) -> None:
    shown = None if client == "none" else Authority.make(tmp_path, "other").signs("client", *JANE)
    async with (serve_with_acl(authority, ["ams.example.com"]) as address,
                channel(address, authority, shown) as connection):  # fmt: skip
        assert (await call(connection, STATUS))[0] == "UNAVAILABLE"


def test_an_entry_that_is_no_name_stops_the_start() -> None:
    with pytest.raises(BadSettings, match="acl: 'foo=bar': this is no distinguished name"):
        AccessList(["foo=bar"])


@pytest.mark.parametrize("identity", [None, {}, {"x509_pem_cert": []}, {"x509_pem_cert": [b"nonsense"]}])
def test_who_is_not_known_is_not_permitted(identity: dict[str, list[bytes]] | None) -> None:
    assert not AccessList(["", "nonsense"]).permits(identity)


async def test_authorities_that_cannot_be_read_stop_the_start(authority: Authority, tmp_path: Path) -> None:
    pair = authority.signs("server", hosts=["127.0.0.1"])
    settings = PushSettings(
        endpoint="http://127.0.0.1:1", token="x", port=0, cert=pair.chain, key=pair.key,
        certificate_authorities_dir=str(tmp_path),
    )  # fmt: skip
    for said in (r"there is no \*.pem file", r"broken.pem holds no certificate"):
        with pytest.raises(BadSettings, match=said):
            async with listening(settings, ByActivation(TargetTable()), Condition(OK)):  # type: ignore[arg-type]
                pass
        (tmp_path / "broken.pem").write_text("nonsense")
