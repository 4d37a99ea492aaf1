"""The service as a client of a push server: what it sends, byte by byte, and how it words what comes back."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from ams.core.errors import BadSettings
from ams.core.push_config import PushConfig
from ams.push.rpc.channel import PushServerAddress, trust
from ams.push.rpc.client import AWAY, GrpcPushServer
from ams.push.upstream import Target
from tests.support.certificates import Authority
from tests.support.reference_push_server import ReferencePushServer, reference_push_server
from tests.support.waiting import wait_until_async
from tests.support.wire_bytes import read, written

PATH = "/projects/p/subscriptions/s"
ENDPOINT = PushConfig(
    "http_endpoint", endpoint="https://example.com/in", max_messages=7, header_type="autogen", header_value="secret",
    retry_policy="linear", retry_period=300, verified=True, base64_decode=True,
)  # fmt: skip
HOOK = PushConfig(
    "mattermost", mattermost_url="https://chat.example/hooks/x", mattermost_username="ams",
    mattermost_channel="town-square", retry_policy="slowstart", retry_period=0, verified=True,
)  # fmt: skip


@contextlib.asynccontextmanager
async def asking(port: int, seconds: float = 3.0, **more: Any) -> AsyncIterator[GrpcPushServer]:
    client = GrpcPushServer(PushServerAddress(host="127.0.0.1", port=port, **more), seconds)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def server() -> AsyncIterator[ReferencePushServer]:
    async with reference_push_server() as running:
        yield running


@pytest.fixture
async def client(server: ReferencePushServer) -> AsyncIterator[GrpcPushServer]:
    async with asking(server.port, tls=False) as made:
        yield made


async def test_an_activation_has_the_field_numbers_of_the_contract(
    server: ReferencePushServer, client: GrpcPushServer
) -> None:
    outcome = await client.activate(Target(PATH, "/projects/p/topics/t", ENDPOINT, 10, ("whsec_x",), "id", "topic"))

    assert outcome.is_ok
    assert outcome.text == f"Subscription {PATH} activated"
    [(method, request)] = server.calls
    assert method == "ActivateSubscription"
    assert request == written(
        (1, [
            (1, PATH),
            (2, "/projects/p/topics/t"),
            (4, [
                (1, "https://example.com/in"), (2, [(1, "linear"), (2, 300)]), (3, 7), (4, "secret"), (9, 1),
            ]),
        ])
    )  # fmt: skip


async def test_a_period_that_the_wire_cannot_carry_is_told_as_the_longest_it_can(
    server: ReferencePushServer, client: GrpcPushServer
) -> None:
    outcome = await client.activate(Target(PATH, "", replace(ENDPOINT, retry_period=2**63 - 1), 10))

    assert outcome.is_ok
    retry = server.active[PATH][2]
    assert isinstance(retry, bytes)
    assert read(retry)[2] == 2**32 - 1


async def test_a_mattermost_activation_has_the_field_numbers_of_the_contract(
    server: ReferencePushServer, client: GrpcPushServer
) -> None:
    await client.activate(Target(PATH, "/projects/p/topics/t", HOOK, 10))

    config = server.active[PATH]
    assert {number: value for number, value in config.items() if number != 2} == {
        3: 1, 5: 1, 6: b"https://chat.example/hooks/x", 7: b"ams", 8: b"town-square",
    }  # fmt: skip
    retry = config[2]
    assert isinstance(retry, bytes)
    assert read(retry) == {1: b"slowstart"}


async def test_answers_are_worded_as_clients_of_the_service_know_them(
    server: ReferencePushServer, client: GrpcPushServer
) -> None:
    assert await client.status(PATH) == f"Error: Subscription {PATH} is not active"
    await client.activate(Target(PATH, "", ENDPOINT, 10))
    assert await client.status(PATH) == f"Subscription {PATH} is currently active"
    assert await client.deactivated(PATH) == f"Subscription {PATH} deactivated"
    assert await client.deactivated(PATH) == f"Error: Subscription {PATH} is not active"

    server.fault = grpc.StatusCode.UNAUTHENTICATED, "UNAUTHORISED"
    assert await client.status(PATH) == "Error: UNAUTHORISED"


async def test_p29_a_push_server_that_hangs_is_away_after_a_while(
    server: ReferencePushServer, client: GrpcPushServer
) -> None:
    server.hangs = True
    async with asking(server.port, 0.2, tls=False) as hurried:
        assert await hurried.status(PATH) == AWAY
        assert await hurried.deactivated(PATH) == AWAY
        assert await hurried.health(details=True) in ("Deadline Exceeded", "no answer within 0.2 seconds")


async def test_a_push_server_that_is_not_there_is_away_and_found_when_it_is_back() -> None:
    async with reference_push_server() as first:
        port = first.port
    async with asking(port, tls=False) as client:
        assert await client.status(PATH) == AWAY
        assert await client.health(details=False) == AWAY
        assert "127.0.0.1" in await client.health(details=True)

        async with reference_push_server(port=port):

            async def serves() -> bool:
                return await client.health(details=False) == "SERVING"

            await wait_until_async(serves)


async def test_p34_health_tells_the_state_that_keeps_a_server_from_working(
    server: ReferencePushServer, client: GrpcPushServer
) -> None:
    assert await client.health(details=False) == "SERVING"

    server.state = "Could not retrieve push worker user"
    unable = "Error: The push service is currently unable to handle any requests.Could not retrieve push worker user"
    assert await client.health(details=False) == unable
    assert await client.health(details=True) == unable


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("certificates"))


@contextlib.asynccontextmanager
async def secure(authority: Authority, host: str) -> AsyncIterator[ReferencePushServer]:
    pair = authority.signs("push", hosts=[host])
    credentials = grpc.ssl_server_credentials([(pair.key_pem, pair.pem)], authority.pair.pem, True)
    async with reference_push_server(credentials) as server:
        yield server


@pytest.mark.parametrize(
    ("host", "more", "verified", "unverified"),
    [
        ("127.0.0.1", "own", "SERVING", "SERVING"),
        ("127.0.0.1", "nobody", AWAY, AWAY),
        ("elsewhere.example.com", "own", AWAY, "SERVING"),
        ("127.0.0.1", "other", AWAY, "SERVING"),
    ],
    ids=["all is well", "we show no certificate", "for another host", "of another authority"],
)
async def test_our_own_certificate_is_shown_and_theirs_is_checked_unless_nobody_verifies(
    authority: Authority, tmp_path: Path, host: str, more: str, verified: str, unverified: str
) -> None:
    own, trusted = authority.signs("ams"), Authority.make(tmp_path, "other") if more == "other" else authority
    shown = {} if more == "nobody" else {"cert": own.chain, "key": own.key}
    async with secure(authority, host) as server:
        for verify, expected in ((True, verified), (False, unverified)):
            async with asking(server.port, authorities=str(trusted.folder), verify=verify, **shown) as client:
                assert await client.health(details=False) == expected


async def test_who_verifies_nobody_finds_out_that_nobody_is_there() -> None:
    async with reference_push_server() as first:
        port = first.port
    async with asking(port, verify=False) as client:
        assert await client.status(PATH) == AWAY


def test_files_that_cannot_be_used_stop_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"certificate_authorities_dir .*: there is no \*.pem file"):
        trust(PushServerAddress(host="x", port=1, authorities=str(tmp_path)))
    with pytest.raises(BadSettings, match="cert nowhere.pem: "):
        trust(PushServerAddress(host="x", port=1, cert="nowhere.pem", key="nowhere.key"))
    assert trust(PushServerAddress(host="x", port=1, tls=False, cert="nowhere.pem")) is None
