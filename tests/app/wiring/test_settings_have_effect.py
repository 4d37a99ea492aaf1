"""Every setting has an effect on a real service, seen from outside.

Each test lists its settings in `shows_settings`, and fails when one of them is ignored. A setting that needs more than
a service is in `ELSEWHERE`, with the test that shows its effect.
"""

import contextlib
import json
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, TypeVar

import httpx
import pytest

from ams.app.wiring.engines import kafka_options
from ams.core.quotas import QUOTAS
from ams.core.settings import Settings
from ams.http import tls
from ams.storage import files
from demo.issuer import ExampleIssuer
from tests.app.client import Client
from tests.support.clock import ManualClock
from tests.support.served import InProcessService, in_process_service
from tests.support.service import live_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.embedded("what is set is mostly about the data folder")

Test = TypeVar("Test", bound=Callable[..., object])

SHOWN: set[str] = set()
ELSEWHERE = {
    "app/test_lifecycle.py::test_a_draining_service_serves_on_but_is_not_ready": "drain_seconds",
    "app/moving/test_moving.py::test_a_cluster_gives_all_of_it_back": ("log registry registry_password"),
    "cluster/test_owners.py::test_nodes_ask_over_tls": "node_ca_file",
    "cluster/test_owners.py::test_a_forwarded_change_is_audited_once": "node_url",
    "contract/test_contract.py::test_the_service_answers_as_the_contract_says": (
        "auth_option idempotency_window max_message_bytes max_pull_messages max_read_messages per_resource_auth"
        " proxy_hostname push_enabled roles_file service_token strict_data"
    ),
    "http/test_audit.py::test_a20_beyond_its_limit_an_address_is_told_so_and_a_good_token_is_not": (
        "failed_logins_per_minute trusted_proxies"
    ),
    "http/test_protocol.py::test_a_long_head_is_refused_before_it_ends": "max_header_bytes",
    "http/test_protocol.py::test_a_body_announced_too_large_is_refused_before_it_comes": "max_body_bytes",
    "http/test_protocol.py::test_a_client_that_drips_is_given_up": "request_seconds",
    "http/test_protocol.py::test_connections_over_the_limit_are_told_to_come_again": "max_connections",
    "http/test_rates.py::test_rates_say_when_to_retry": "user_requests_per_second",
    "http/test_named_tokens.py::test_where_tokens_are_shown_once_only_what_makes_one_shows_it": "show_tokens",
    "app/wiring/test_service.py::test_an_emulator_asks_for_no_token_and_makes_projects": "pubsub_emulator",
    "pubsub/test_messages.py::test_a_request_may_have_10_mb_and_of_an_emulator_20": "pubsub_max_message_bytes",
    "pubsub/test_access.py::test_a_token_comes_as_bearer_or_as_an_api_key": "pubsub_port",
    "service/push/test_runner.py::test_a_message_is_delivered_and_acknowledged": "push_allow push_ca_file",
    "app/wiring/test_service.py::test_a_start_with_push_makes_the_worker_beside_the_first_administrator": (
        "push_worker_token"
    ),
}
"""Tests, and the settings they show."""
SECONDS = 10  # a socket is given so long: much less than any default, much more than what is set here


def shows_settings(*settings: str) -> Callable[[Test], Test]:
    def note_settings(test: Test) -> Test:
        SHOWN.update(settings)
        return test

    return note_settings


@pytest.fixture(scope="module")
def limited_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    folder = tmp_path_factory.mktemp("limited")
    with in_process_service(
        folder / "data", max_pull_bytes=12_000, metrics_labels=True, push_inside=False, reserve_bytes=123_456,
        retention=3_600.0, token_key="ab" * 32,
    ) as given:  # fmt: skip
        with Client(given) as client:
            client.prepare()
        yield given


@pytest.fixture
def client(limited_service: InProcessService) -> Iterator[Client]:
    with Client(limited_service) as client:
        yield client


def metrics(given: InProcessService) -> str:
    return httpx.get(f"{given.run.operations_url}/metrics", timeout=PATIENCE_SECONDS).text


@shows_settings("push_inside", "token_key")
def test_without_push_inside_nothing_is_measured_of_it_and_no_token_key_is_stored(limited_service: InProcessService):
    assert "ams_push_" not in metrics(limited_service)
    assert not Path(limited_service.run.service.folder.token_key).exists()


@shows_settings("max_pull_bytes")
def test_a_pull_is_cut_by_bytes(client: Client) -> None:
    client.topic("large")
    for _ in range(3):
        client.publish("YWFh" * 2_000, topic="large").raise_for_status()
    assert len(client.pull("large", maxMessages="3")) < 3


@shows_settings("metrics_labels")
def test_metrics_tell_topics_apart(client: Client, limited_service: InProcessService) -> None:
    client.topic("measured")
    client.publish("YQ==", topic="measured").raise_for_status()
    limited_service.carry_out(limited_service.run.service.counting.round())

    assert 'ams_topic_published_messages_total{project="P",topic="measured"} 1.0' in metrics(limited_service)

    limited_service.carry_out(limited_service.run.service.quota_use.count())
    shown = {each["name"]: each for each in client.get("/projects/P:quotas").json()["quotas"] if "used" in each}
    lines = [line for line in metrics(limited_service).splitlines() if line.startswith("ams_project_quota_")]
    assert len(lines) == 2 * len(shown) == 18
    for name, value in (("used", shown["topics"]["used"]), ("limit", shown["topics"]["limit"])):
        assert f'ams_project_quota_{name}{{project="P",quota="topics"}} {value:.1f}' in lines
    assert f'ams_project_quota_limit{{project="P",quota="streams"}} {shown["streams"]["share"]:.1f}' in lines


@shows_settings("data", "reserve_bytes", "retention")
def test_the_folder_has_a_reserve_and_segments_by_retention(limited_service: InProcessService, client: Client) -> None:
    client.publish("YQ==").raise_for_status()
    data = Path(limited_service.run.service.settings.data)
    names = {each.relative_to(data).as_posix(): each for each in data.rglob("*")}

    assert names["log/reserve"].stat().st_size == 123_456
    assert {"registry.db", "log/cursors"} <= names.keys()
    folders = {name.split("/")[1] for name in names if name.count("/") == 2 and name.startswith("log/")}
    assert folders == {"1h", "cursors"}


@shows_settings(*QUOTAS.values())
def test_a_setting_is_the_default_of_a_quota(tmp_path: Path) -> None:
    quotas = {name: 10 + number for number, name in enumerate(QUOTAS)}
    settings = {QUOTAS[name]: limit for name, limit in quotas.items()}
    with in_process_service(tmp_path / "data", **settings) as given, Client(given) as client:
        client.prepare()
        shown = client.get("/projects/P:quotas").json()["quotas"]

    assert {each["name"]: each["limit"] for each in shown} == quotas


@shows_settings("max_buffered_bytes", "min_free_bytes", "keep_alive_seconds")
def test_a_service_with_little_room_and_patience_says_so(tmp_path: Path) -> None:
    with in_process_service(tmp_path / "data") as given, Client(given) as client:
        client.prepare()
    little = {"max_buffered_bytes": 100_000, "min_free_bytes": 2**60}
    patience = {"keep_alive_seconds": 0.3, "request_seconds": 2}
    with in_process_service(tmp_path / "data", **little, **patience) as given, Client(given) as client:
        client.headers["connection"] = "close"  # a kept one may be closed just when the next request is sent
        full = client.publish("YQ==")
        assert (full.status_code, full.headers["retry-after"]) == (500, "2")

        head = f"POST /v1/projects/P/topics/t:publish HTTP/1.1\r\nhost: x\r\nx-api-key: {given.token}\r\n"
        assert b" 503 " in until_closed(given, head.encode() + b"content-length: 999999\r\n\r\n" + bytes(200_000), b"a")
        assert b" 200 " in until_closed(given, b"GET /v1/version HTTP/1.1\r\nhost: x\r\n\r\n")


def until_closed(given: InProcessService, *parts: bytes) -> bytes:
    """Send something in parts and return the bytes that arrive until the service closes the connection."""
    found = b""
    with given.connect(SECONDS) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(0.1)  # so that it comes as a part
        while came := connection.recv(4_096):
            found += came
    return found


@shows_settings("max_unread_bytes")
def test_a_pull_that_there_is_no_memory_for_is_refused(tmp_path: Path) -> None:
    with in_process_service(tmp_path / "data", max_unread_bytes=1_000) as given, Client(given) as client:
        client.prepare().publish("YWFh" * 30_000).raise_for_status()
        assert client.post("/projects/P/subscriptions/ts:pull", json={}).status_code == 503


@shows_settings("pull_wait")
def test_without_a_wait_a_pull_answers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def waiting(*_: object) -> None:
        raise AssertionError("it waits")

    with in_process_service(tmp_path / "data", pull_wait=0.0) as given, Client(given) as client:
        client.prepare()
        monkeypatch.setattr(type(given.run.service.log), "wait", waiting)
        assert client.pull() == []


@shows_settings("max_data_bytes", "segment_bytes")
def test_a_data_folder_over_its_size_loses_its_oldest_segments_that_were_read(tmp_path: Path) -> None:
    room = {"max_data_bytes": 4 * 2**20, "segment_bytes": 2**20, "project_stored_bytes": 2**30}
    with in_process_service(tmp_path / "data", **room) as given, Client(given) as client:
        client.prepare()
        for _ in range(8):
            client.publish("YWFh" * 300_000).raise_for_status()
        embedded = given.run.service.embedded
        assert embedded is not None
        given.carry_out(embedded.retain())
        assert client.get("/projects/P/subscriptions/ts:offsets").json()["min"] == 0

        client.post("/projects/P/subscriptions/ts:modifyOffset", json={"offset": 8}).raise_for_status()
        given.carry_out(embedded.retain())
        assert client.get("/projects/P/subscriptions/ts:offsets").json()["min"] > 0


@shows_settings("sync", "sync_interval")
def test_a_publish_is_synced_before_its_answer_or_later_if_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = threading.Event()

    def noting(call: Callable[..., None]) -> Callable[..., None]:
        def call_and_note(*given: Any) -> None:
            call(*given)
            synced.set()

        return call_and_note

    for name in ("write_through", "sync"):
        monkeypatch.setattr(files.Disk, name, noting(getattr(files.Disk, name)))
    with in_process_service(tmp_path / "default") as given, Client(given) as client:
        client.prepare().publish("YQ==").raise_for_status()  # a first one also makes a segment
        synced.clear()
        client.publish("YQ==").raise_for_status()
        assert synced.is_set()
    with (in_process_service(tmp_path / "interval", sync="interval", sync_interval=5.0) as given,
          Client(given) as client):  # fmt: skip
        client.prepare().publish("YQ==").raise_for_status()
        for milliseconds, is_synced in ((5_000, True), (1_000, False), (5_000, True)):
            synced.clear()
            given.clock.advance(milliseconds)  # type: ignore[arg-type]
            client.publish("YQ==").raise_for_status()
            assert synced.wait(SECONDS if is_synced else 0.3) == is_synced


def is_reached(host: str, port: int | None) -> bool:
    assert port is not None
    with socket.socket() as tried:
        return tried.connect_ex((host, port)) == 0


@shows_settings("host", "port", "ops_host", "ops_port")
def test_both_ports_are_where_they_are_set_and_nowhere_else(tmp_path: Path) -> None:
    with in_process_service(tmp_path / "default") as given:
        assert not is_reached("127.0.0.2", httpx.URL(given.run.base_url).port)
        assert not is_reached("127.0.0.2", httpx.URL(given.run.operations_url).port)
    # A service that listened on any other address could not start: these ports are taken there.
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        port, ops_port = first.getsockname()[1], second.getsockname()[1]
        with in_process_service(tmp_path / "set", host="127.0.0.2", port=port, ops_host="127.0.0.3", ops_port=ops_port):
            assert httpx.get(f"http://127.0.0.2:{port}/v1/version", timeout=PATIENCE_SECONDS).status_code == 200
            assert httpx.get(f"http://127.0.0.3:{ops_port}/readyz", timeout=PATIENCE_SECONDS).status_code == 200


@shows_settings("tls_self_signed", "cert", "key")
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_https_has_the_set_certificate_and_tls_1_2_or_newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Only the service's own minimum version may refuse: OpenSSL's default ciphers rule out TLS 1.1.
    monkeypatch.setattr(tls, "ssl", SimpleNamespace(**{**vars(ssl), "SSLContext": AnyCipher}))
    with in_process_service(tmp_path / "first", tls_self_signed=True) as given:
        first = ssl.get_server_certificate(("127.0.0.1", httpx.URL(given.run.base_url).port or 0))
        key = next((tmp_path / "first").glob("server*key*"))
    chain = tmp_path / "first" / "server.pem"
    with in_process_service(tmp_path / "second", cert=str(chain), key=str(key)) as given:
        port = httpx.URL(given.run.base_url).port or 0
        assert ssl.get_server_certificate(("127.0.0.1", port)) == first
        assert negotiated_version("127.0.0.1", port, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
        for old in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            with pytest.raises(ssl.SSLError, match="(?i)protocol version|EOF occurred"):
                negotiated_version("127.0.0.1", port, old)


class AnyCipher(ssl.SSLContext):
    def __new__(cls, protocol: int) -> "AnyCipher":
        made = super().__new__(cls, protocol)
        made.set_ciphers("ALL:@SECLEVEL=0")
        return made


def negotiated_version(host: str, port: int, version: ssl.TLSVersion) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with socket.create_connection((host, port), SECONDS) as plain, context.wrap_socket(plain) as wrapped:
        return wrapped.version()


class Listener:
    def __init__(self, certificate: tuple[Path, Path]) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*certificate)
        self._context.set_alpn_protocols(["h2"])
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.began: SimpleQueue[str] = SimpleQueue()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._listening.accept()
                with connection:
                    self.began.put(self._beginning(connection))

    def _beginning(self, connection: socket.socket) -> str:
        connection.settimeout(SECONDS)
        if connection.recv(1, socket.MSG_PEEK) != b"\x16":  # TLS begins so
            return "without TLS"
        try:
            with self._context.wrap_socket(connection, server_side=True):
                return "believed"
        except OSError:
            return "refused"

    def close(self) -> None:
        self._listening.close()


@shows_settings(
    "push_server_host", "push_server_port", "push_tls_enabled", "verify_push_server", "certificate_authorities_dir"
)  # fmt: skip
def test_a_push_server_is_asked_where_it_is_set_and_believed_only_by_its_certificate(tmp_path: Path) -> None:
    authority, chain, key = tls.self_signed(str(tmp_path))
    (tmp_path / "authorities").mkdir()
    shutil.copy(authority, tmp_path / "authorities" / "ca.pem")
    cases: list[tuple[dict[str, object], str]] = [
        ({}, "refused"), ({"certificate_authorities_dir": str(tmp_path / "authorities")}, "believed"),
        ({"verify_push_server": False}, "believed"), ({"push_tls_enabled": False}, "without TLS"),
    ]  # fmt: skip
    for number, (settings, expected) in enumerate(cases):
        server = Listener((Path(chain), Path(key)))
        place = {"push_server_host": "localhost", "push_server_port": server.port}
        with contextlib.closing(server), in_process_service(tmp_path / str(number), **place, **settings) as given:
            httpx.get(f"{given.run.base_url}/v1/status", timeout=SECONDS)
            assert server.began.get(timeout=SECONDS) == expected, settings


def issuers(folder: Path, url: str) -> dict[str, str]:
    file = folder / "issuers.toml"
    file.write_text(f'[[issuer]]\nname = "egi"\nurl = "{url}"\naudiences = ["ams"]\n')
    return {"issuers_file": str(file), "issuers_allow": "127.0.0.0/8,::1/128"}


@shows_settings("issuers_file", "issuers_allow", "issuers_leeway")
def test_an_issuer_of_the_settings_is_asked_and_believed_a_while_after_its_token_ended(tmp_path: Path) -> None:
    clock = [ManualClock()]
    with ExampleIssuer(now=lambda: clock[0].wall() / 1000) as issuer:
        place = issuers(tmp_path, issuer.url)
        with in_process_service(tmp_path / "data", issuers_leeway=200.0, **place) as given, Client(given) as client:
            clock[0] = given.clock
            binding = {"issuer": issuer.url, "subject": "alice"}
            client.post("/users/admin/bindings/work", json=binding).raise_for_status()
            token = issuer.token(lifetime=60)
            given.clock.advance(160_000)  # type: ignore[arg-type]
            headers = {"authorization": f"Bearer {token}"}

            url = f"{given.run.base_url}/v1/users/profile"
            assert httpx.get(url, headers=headers, timeout=PATIENCE_SECONDS).status_code == 200


@shows_settings("console", "console_logins")
def test_the_console_names_the_issuers_it_is_a_client_of_and_can_be_switched_off(tmp_path: Path) -> None:
    with ExampleIssuer() as issuer:
        logins = (("egi", "pages"), ("other", "pages"))
        with in_process_service(tmp_path / "on", console_logins=logins, **issuers(tmp_path, issuer.url)) as given:
            said = httpx.get(f"{given.run.base_url}/console/config.json", timeout=SECONDS).json()
    with in_process_service(tmp_path / "off", console=False) as given:
        status = httpx.get(f"{given.run.base_url}/console/config.json", timeout=SECONDS).status_code

    assert [(each["name"], each["client_id"]) for each in said["issuers"]] == [("egi", "pages")]
    assert status == 404


@shows_settings("issuers_ca_file")
def test_an_issuer_is_believed_by_the_authorities_that_are_set(tmp_path: Path) -> None:
    authority, chain, key = tls.self_signed(str(tmp_path))
    for number, (trusted, expected) in enumerate((("", "refused"), (authority, "believed"))):
        server = Listener((Path(chain), Path(key)))
        url = f"https://localhost:{server.port}"
        place = issuers(tmp_path, url)
        started = in_process_service(tmp_path / str(number), issuers_ca_file=trusted, **place)
        with contextlib.closing(server), ExampleIssuer() as issuer, started as given:
            headers = {"authorization": f"Bearer {issuer.token(claims={'iss': url})}"}
            httpx.get(f"{given.run.base_url}/v1/users/profile", headers=headers, timeout=SECONDS)
            assert server.began.get(timeout=SECONDS) == expected


@shows_settings("audit_days")
def test_events_leave_the_audit_log_after_their_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ams.storage.audit.trail.PRUNE_SECONDS", 0.05)
    with in_process_service(tmp_path / "data", audit_days=2) as given, Client(given) as client:
        client.prepare()
        wait_until(lambda: "projects:create" in client.get("/audit").raise_for_status().text)

        given.clock.advance(3 * 86_400_000)  # type: ignore[arg-type]

        wait_until(lambda: "projects:create" not in client.get("/audit").raise_for_status().text)


@pytest.mark.long
@shows_settings("log_level", "log_format", "log_facilities")
def test_the_log_is_as_it_is_set(tmp_path: Path) -> None:
    with live_service(tmp_path / "json", environment={"AMS_LOG_FORMAT": "json", "AMS_LOG_LEVEL": "debug"}) as live:
        httpx.get(f"{live.base_url}/v1/version", timeout=PATIENCE_SECONDS)
    said = [json.loads(line) for line in (tmp_path / "json.stderr").read_text().splitlines()]
    assert {"debug", "info"} <= {line["level"] for line in said}
    assert [line["url"] for line in said if line["event"] == "console"] == [f"{live.base_url}/console/"]

    with (contextlib.suppress(AssertionError),
          live_service(tmp_path / "syslog", environment={"AMS_LOG_FACILITIES": "syslog"})):  # fmt: skip
        assert Path("/dev/log").exists()
    errors = (tmp_path / "syslog.stderr").read_text()
    assert "first_start" not in errors
    assert Path("/dev/log").exists() or "no syslog at" in errors


@shows_settings(
    "kafka_servers", "kafka_prefix", "kafka_replication", "kafka_min_isr", "kafka_tls", "kafka_ca_file", "kafka_sasl",
    "kafka_user", "kafka_password",
)  # fmt: skip
def test_every_setting_of_kafka_reaches_the_log_on_kafka() -> None:
    given: dict[str, Any] = {
        "servers": "one:1,two:2", "prefix": "p", "replication": 5, "min_isr": 4, "tls": True, "ca_file": "ca.pem",
        "sasl": "plain", "user": "u", "password": "secret",
    }  # fmt: skip
    options = kafka_options(Settings(**{f"kafka_{name}": value for name, value in given.items()}))

    assert {name: getattr(options, name) for name in given} == given


def test_every_setting_has_a_test_that_shows_its_effect() -> None:
    names = {each.name for each in Settings.fields()}
    elsewhere = {name for settings in ELSEWHERE.values() for name in settings.split()}
    assert names == SHOWN | elsewhere
    assert SHOWN & elsewhere == set()


@pytest.mark.parametrize("test", ELSEWHERE)
def test_a_test_that_is_named_for_a_setting_exists(test: str) -> None:
    path, name = test.split("::")
    assert f"def {name}(" in (Path(__file__).parents[2] / path).read_text()
