"""The service as a client of a push server: its wire, byte by byte, and reconciliation with the wanted targets."""

import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from ams.core.errors import BadSettings, RegistryUnavailable
from ams.core.push_config import PushConfig
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.push.rpc.client import MAX_CONCURRENT_CALLS, UNAVAILABLE, CallOutcome, DrivenPushServer
from ams.push.rpc.wire import trust
from ams.push.upstream import Target
from tests.service.interference import fail_calls
from tests.support.certificates import Authority
from tests.support.reference_push_server import ReferencePushServer, reference_push_server
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async
from tests.support.wire_bytes import decode_fields, encode_fields

PATH = "/projects/p/subscriptions/s"
ENDPOINT = PushConfig(
    "http_endpoint", endpoint="https://example.com/in", max_messages=7, header_type="autogen", header_value="secret",
    retry_policy="linear", retry_period=300, verified=True, base64_decode=True,
)  # fmt: skip
HOOK = PushConfig(
    "mattermost", mattermost_url="https://chat.example/hooks/x", mattermost_username="ams",
    mattermost_channel="town-square", retry_policy="slowstart", retry_period=0, verified=True,
)  # fmt: skip


def plain_settings(port: int) -> Settings:
    return Settings(push_server_host="127.0.0.1", push_server_port=port, push_tls_enabled=False)


@contextlib.asynccontextmanager
async def open_client(port: int, seconds: float = 3.0, **more: Any) -> AsyncIterator[DrivenPushServer]:
    client = DrivenPushServer(Settings(push_server_host="127.0.0.1", push_server_port=port, **more), seconds)
    try:
        yield client
    finally:
        await client.close()


@pytest.fixture
async def server() -> AsyncIterator[ReferencePushServer]:
    async with reference_push_server() as running:
        yield running


@pytest.fixture
async def client(server: ReferencePushServer) -> AsyncIterator[DrivenPushServer]:
    async with open_client(server.port, push_tls_enabled=False) as made:
        yield made


async def test_an_activation_has_the_contracts_numbers(server: ReferencePushServer, client: DrivenPushServer) -> None:
    outcome = await client.activate(Target(PATH, "/projects/p/topics/t", ENDPOINT, 10, ("whsec_x",), "id", "topic"))

    assert outcome.is_ok
    assert outcome.text == f"Subscription {PATH} activated"
    [(method, request)] = server.calls
    assert method == "ActivateSubscription"
    assert request == encode_fields(
        (1, [
            (1, PATH),
            (2, "/projects/p/topics/t"),
            (4, [
                (1, "https://example.com/in"), (2, [(1, "linear"), (2, 300)]), (3, 7), (4, "secret"), (9, 1),
            ]),
        ])
    )  # fmt: skip


async def test_a_period_is_at_most_the_longest_of_the_wire(
    server: ReferencePushServer, client: DrivenPushServer
) -> None:
    outcome = await client.activate(Target(PATH, "", replace(ENDPOINT, retry_period=2**63 - 1), 10))

    assert outcome.is_ok
    retry = server.active[PATH][2]
    assert isinstance(retry, bytes)
    assert decode_fields(retry)[2] == 2**32 - 1


async def test_a_mattermost_activation_has_its_numbers(server: ReferencePushServer, client: DrivenPushServer) -> None:
    await client.activate(Target(PATH, "/projects/p/topics/t", HOOK, 10))

    config = server.active[PATH]
    assert {number: value for number, value in config.items() if number != 2} == {
        3: 1, 5: 1, 6: b"https://chat.example/hooks/x", 7: b"ams", 8: b"town-square",
    }  # fmt: skip
    retry = config[2]
    assert isinstance(retry, bytes)
    assert decode_fields(retry) == {1: b"slowstart"}


async def test_answers_have_the_words_that_clients_know(server: ReferencePushServer, client: DrivenPushServer) -> None:
    assert await client.status(PATH) == f"Error: Subscription {PATH} is not active"
    await client.activate(Target(PATH, "", ENDPOINT, 10))
    assert await client.status(PATH) == f"Subscription {PATH} is currently active"
    assert await client.deactivation_outcome(PATH) == f"Subscription {PATH} deactivated"
    assert await client.deactivation_outcome(PATH) == f"Error: Subscription {PATH} is not active"

    server.fault = grpc.StatusCode.UNAUTHENTICATED, "UNAUTHORISED"
    assert await client.status(PATH) == "Error: UNAUTHORISED"


async def test_p29_a_push_server_that_hangs_counts_as_away(
    server: ReferencePushServer, client: DrivenPushServer
) -> None:
    server.hangs = True
    async with open_client(server.port, 0.2, push_tls_enabled=False) as hurried:
        assert await hurried.status(PATH) == UNAVAILABLE
        assert await hurried.deactivation_outcome(PATH) == UNAVAILABLE
        assert await hurried.health(details=True) in ("Deadline Exceeded", "no answer within 0.2 seconds")


async def test_a_push_server_that_is_not_there_is_away_and_found_when_it_is_back() -> None:
    async with reference_push_server() as first:
        port = first.port
    async with open_client(port, push_tls_enabled=False) as client:
        assert await client.status(PATH) == UNAVAILABLE
        assert await client.health(details=False) == UNAVAILABLE
        assert "127.0.0.1" in await client.health(details=True)

        async with reference_push_server(port=port):

            async def is_serving() -> bool:
                return await client.health(details=False) == "SERVING"

            await wait_until_async(is_serving)


async def test_p34_health_tells_why_a_server_does_not_work(
    server: ReferencePushServer, client: DrivenPushServer
) -> None:
    assert await client.health(details=False) == "SERVING"

    server.state = "Could not retrieve push worker user"
    unable = "Error: The push service is currently unable to handle any requests.Could not retrieve push worker user"
    assert await client.health(details=False) == unable
    assert await client.health(details=True) == unable


@contextlib.asynccontextmanager
async def run_secure_server(authority: Authority, host: str) -> AsyncIterator[ReferencePushServer]:
    pair = authority.signs("push", hosts=[host])
    credentials = grpc.ssl_server_credentials([(pair.key_pem, pair.pem)], authority.pair.pem, True)
    async with reference_push_server(credentials) as server:
        yield server


@pytest.mark.parametrize(("host", "more", "verified", "unverified"), [
    ("127.0.0.1", "own", "SERVING", "SERVING"), ("127.0.0.1", "nobody", UNAVAILABLE, UNAVAILABLE),
    ("elsewhere.example.com", "own", UNAVAILABLE, "SERVING"), ("127.0.0.1", "other", UNAVAILABLE, "SERVING"),
], ids=["all is well", "we show no certificate", "for another host", "of another authority"])  # fmt: skip
async def test_our_own_certificate_is_shown_and_theirs_is_checked_unless_nobody_verifies(
    authority: Authority, tmp_path: Path, host: str, more: str, verified: str, unverified: str
) -> None:
    own, trusted = authority.signs("ams"), Authority.make(tmp_path, "other") if more == "other" else authority
    shown = {} if more == "nobody" else {"cert": own.chain, "key": own.key}
    async with run_secure_server(authority, host) as server:
        for verify, expected in ((True, verified), (False, unverified)):
            secured: dict[str, Any] = {"certificate_authorities_dir": str(trusted.folder), "verify_push_server": verify}
            async with open_client(server.port, **secured, **shown) as client:
                assert await client.health(details=False) == expected


def test_files_that_cannot_be_used_stop_the_start(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"certificate_authorities_dir .*: there is no \*.pem file"):
        trust(Settings(push_server_host="x", push_server_port=1, certificate_authorities_dir=str(tmp_path)))
    with pytest.raises(BadSettings, match="cert nowhere.pem: "):
        trust(Settings(push_server_host="x", push_server_port=1, cert="nowhere.pem", key="nowhere.key"))
    assert trust(Settings(push_server_host="x", push_server_port=1, push_tls_enabled=False, cert="nowhere.pem")) is None


# Reconciliation after any failure on either side (P3, P28, P31)

CONFIG = PushConfig("http_endpoint", endpoint="https://example.com/in", verified=True)


def target(name: str, config: PushConfig = CONFIG) -> Target:
    return Target(f"/projects/p/subscriptions/{name}", "/projects/p/topics/t", config, 10, topic_id="t")


@dataclass
class WantedTargets:
    targets: list[Target] = field(default_factory=list)
    fails: bool = False

    async def __call__(self) -> Sequence[Target]:
        if self.fails:
            raise RegistryUnavailable
        return list(self.targets)


@dataclass
class Drive:
    server: ReferencePushServer
    wanted: WantedTargets
    driving: DrivenPushServer

    async def follow(self, *targets: Target) -> bool:
        self.wanted.targets = list(targets)
        return await self.driving.round()

    def active(self) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in self.server.active)


@pytest.fixture
async def drive() -> AsyncIterator[Drive]:
    async with reference_push_server() as server:
        driving = DrivenPushServer(plain_settings(server.port), 60.0)
        driving.targets = wanted = WantedTargets()
        yield Drive(server, wanted, driving)
        await driving.close()


async def test_what_is_wanted_is_activated_and_what_is_wanted_no_more_deactivated(drive: Drive) -> None:
    assert await drive.follow(target("a"), target("b"))
    assert drive.active() == ["a", "b"]

    assert await drive.follow(target("b"))
    assert drive.active() == ["b"]
    assert list(drive.driving.results) == ["/projects/p/subscriptions/b"]


async def test_what_is_as_wanted_is_only_looked_at(drive: Drive) -> None:
    await drive.follow(target("a"))
    drive.server.calls.clear()

    await drive.driving.round()

    assert [method for method, _ in drive.server.calls] == ["SubscriptionStatus"]
    assert drive.driving.results[target("a").path].text.endswith("is currently active")


async def test_a_changed_target_is_deactivated_and_activated(drive: Drive) -> None:
    await drive.follow(target("a"))

    await drive.follow(target("a", replace(CONFIG, endpoint="https://example.com/other")))

    assert drive.server.active[target("a").path][1] == b"https://example.com/other"


@pytest.mark.parametrize("others", [{}, {target("a").path: {1: b"https://example.com/old"}}], ids=["new", "told"])
async def test_a_push_server_with_other_state_is_told_again(drive: Drive, others: dict[str, dict[int, bytes]]) -> None:
    drive.server.active.update(others)
    await drive.follow(target("a"))
    assert drive.server.active[target("a").path][1] == b"https://example.com/in"
    drive.server.active.clear()

    await drive.driving.round()

    assert drive.active() == ["a"]


async def test_what_nobody_here_activated_is_left_alone(drive: Drive) -> None:
    drive.server.active["/projects/other/subscriptions/x"] = {}

    await drive.driving.round()

    assert drive.active() == ["x"]


async def test_p28_a_refusal_is_kept_and_repaired_later(drive: Drive) -> None:
    drive.wanted.targets = [target("a")]
    drive.server.fault = grpc.StatusCode.INTERNAL, "not yet"
    assert await drive.driving.round()
    assert drive.driving.results[target("a").path].client_text() == "Error: not yet"

    drive.server.fault = None
    await drive.driving.round()
    assert drive.active() == ["a"]


async def test_a_target_that_cannot_be_told_keeps_no_other_from_being_driven(drive: Drive) -> None:
    """P4: one target's fault."""
    assert await drive.follow(target("a", replace(CONFIG, endpoint="https://\ud800/")), target("b"))

    assert drive.active() == ["b"]
    assert drive.driving.results[target("a").path].client_text() == "Error: unexpected UnicodeEncodeError"


async def test_a_deactivation_that_failed_is_repaired_later(drive: Drive) -> None:
    await drive.follow(target("a"))
    drive.wanted.targets = []
    drive.server.fault = grpc.StatusCode.UNAVAILABLE, "not now"
    assert not await drive.driving.round()
    assert drive.driving.results[target("a").path].is_away

    drive.server.fault = None
    assert await drive.driving.round()
    assert drive.active() == []
    assert dict(drive.driving.results) == {}


async def test_a_deactivation_that_ends_by_a_defect_fails_no_change_and_is_repaired_later(drive: Drive) -> None:
    await drive.follow(target("a"))
    drive.wanted.targets = []

    with fail_calls(DrivenPushServer, "deactivate", ValueError):
        await drive.driving.settle(PATIENCE_SECONDS)
    assert drive.driving.results[target("a").path].client_text() == "Error: unexpected ValueError"

    await drive.driving.round()
    assert drive.active() == []


async def test_a_registry_that_does_not_answer_changes_nothing(drive: Drive) -> None:
    await drive.follow(target("a"))
    drive.wanted.fails = True

    assert not await drive.driving.round()
    assert drive.active() == ["a"]


async def test_a_push_server_that_is_away_is_not_asked_about_each_subscription() -> None:
    class AwayServer(DrivenPushServer):
        asked = 0

        async def look(self, path: str) -> CallOutcome:
            self.asked += 1
            return CallOutcome(grpc.StatusCode.UNAVAILABLE, "nobody is there")

    server = AwayServer(plain_settings(1))
    server.targets = WantedTargets([target(f"s{number}") for number in range(100)])

    for _ in range(2):
        assert not await server.round()
    assert server.asked <= 2 * MAX_CONCURRENT_CALLS
    assert all(each.is_away for each in server.results.values())
    assert len(server.results) == 100


async def test_a_change_is_followed_at_once(drive: Drive) -> None:
    await drive.driving.start(drive.wanted, Supervisor())
    drive.wanted.targets = [target("a")]
    await drive.driving.settle()
    await wait_until_async(lambda: drive.active() == ["a"])


async def test_p31_what_has_no_topic_is_not_delivered_until_it_has_one_again() -> None:
    async with reference_push_server() as server:
        driven = DrivenPushServer(plain_settings(server.port))
        wanted = WantedTargets([replace(target("a"), topic_id="first"), replace(target("b"), topic_id="")])
        await driven.start(wanted, Supervisor())
        for topic_id in ("first", "", "second"):
            wanted.targets[0] = replace(target("a"), topic_id=topic_id)
            await driven.settle()
            assert list(server.active) == ([target("a").path] if topic_id else [])
        await driven.close()


# The schema: the committed file equals the tool's output; its numbers are in the bytes above and in a server's

ROOT = Path(__file__).parents[2]
FOLDER = Path("ams/push/rpc")


def test_the_generated_files_are_what_the_tool_makes_of_the_schema(tmp_path: Path) -> None:
    schema = str(FOLDER / "push_service.proto")
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-Isrc", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}",
         str(Path("src") / schema)],
        cwd=ROOT, check=True, timeout=60,
    )  # fmt: skip

    for name in ("push_service_pb2.py", "push_service_pb2.pyi"):
        assert (tmp_path / FOLDER / name).read_text() == (ROOT / "src" / FOLDER / name).read_text(), "run make proto"
