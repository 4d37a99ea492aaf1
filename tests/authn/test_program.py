"""`ams authn serve` as a program: a first start, what is in its folder, an orderly end; and beside AMS."""

import asyncio
import contextlib
import datetime
import json
import os
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from ams.authn.assembly import AuthnFolder, bearable
from ams.authn.program import Running, running
from ams.authn.settings import AuthnSettings
from ams.authn.store import Store
from ams.authn.store.tables import audit
from ams.core.clock import ManualClock
from ams.core.errors import BadSettings, Unusable
from ams.core.settings import Seconds
from ams.core.supervisor import Supervisor
from ams.storage.audit.logins import EACH
from ams.storage.audit.records import AuditRecords
from ams.storage.database.database import sqlite_url
from ams.storage.folder import Folder
from tests.storage.audit.events import event
from tests.support.authorities import DAY, NOW, YEARS, Authority, Credentials
from tests.support.receiver import answers, receiver
from tests.support.waiting import wait_until, wait_until_async

MILLISECOND = datetime.timedelta(milliseconds=1)
NEW = {"authn.key": 0o600, "authn.seal": 0o600, "authn.lock": 0o600, "authn-audit.jsonl": 0o600}


def asked(url: str, ca: str, **headers: str) -> tuple[int, str]:
    """Ask once; return status and body."""
    secure = ssl.create_default_context(cafile=ca)
    answer = httpx.get(url, headers=headers, verify=secure, trust_env=False, timeout=60)
    return answer.status_code, answer.text


def settings_in(folder: Path, **more: object) -> AuthnSettings:
    """Return settings of a service in a folder, on free ports and with a certificate of its own."""
    usual = {"data": str(folder / "data"), "port": 0, "ops_port": 0, "tls_self_signed": True, "client_ca": str(folder)}
    return AuthnSettings(**usual | more)  # type: ignore[arg-type]  # tests name settings freely


@contextlib.asynccontextmanager
async def serving(
    folder: Path, *, clock: ManualClock | None = None, **more: object
) -> AsyncIterator[tuple[Running, str]]:
    """Run a service in this process; gives it, and the file of its CA."""
    async with running(settings_in(folder, **more), Supervisor(), clock=clock) as run:
        yield run, str(folder / "data" / "authn-tls" / "ca.pem")


@pytest.fixture
def started(tmp_path: Path) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """A service as a process, and its URL."""
    (tmp_path / "ca").mkdir()
    command = [
        sys.executable, "-m", "ams.cli.main", "authn", "serve", "--data", str(tmp_path / "data"), "--port", "0",
        "--ops-port", "0", "--tls-self-signed", "--client-ca", str(tmp_path / "ca"), "--log-level", "debug",
    ]  # fmt: skip
    with (tmp_path / "stderr").open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    assert process.stdout is not None
    with process.stdout:
        ready, _, url = process.stdout.readline().strip().partition(" ")
        assert ready == "ready", (tmp_path / "stderr").read_text()
        yield process, url
        process.kill()
        process.wait()


def test_a9_a_first_start_makes_files_and_serves(started: "tuple[subprocess.Popen[str], str]", tmp_path: Path) -> None:
    (process, url), data, errors = started, tmp_path / "data", tmp_path / "stderr"
    key, ca = (data / "authn.key").read_text().strip(), str(data / "authn-tls" / "ca.pem")
    assert len(key) == 64
    assert {name: os.stat(data / name).st_mode & 0o777 for name in NEW} == NEW
    assert os.stat(data).st_mode & 0o777 == 0o700
    for path, given, status in (
        ("/v1/service-types", key, 200),
        ("/v1/service-types", "another", 401),
        (f"/v1/bindings?key={key}", "", 200),
    ):
        assert asked(url + path, ca, **({"x-api-key": given} if given else {}))[0] == status

    process.send_signal(signal.SIGHUP)
    wait_until(lambda: "certificate.loaded" in errors.read_text(), process=process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert key not in errors.read_text() + (data / "authn-audit.jsonl").read_text()


async def offered(url: str, ca: str, port: int, subject: str) -> None:
    """Make a service type, how its users are asked for, and a binding."""
    secure = ssl.create_default_context(cafile=ca)
    async with httpx.AsyncClient(
        base_url=f"{url}/v1", verify=secure, headers={"x-api-key": "the-key"}, trust_env=False
    ) as client:
        body: dict[str, object] = {
            "name": "ams", "hosts": ["localhost"], "auth_types": ["x509"], "auth_method": "headers", "type": "ams",
        }  # fmt: skip
        made = (await client.post("/service-types", json=body)).json()
        body = {"host": "localhost", "port": port, "headers": {"x-api-key": "a-key-of-ams"}}
        assert (await client.post("/service-types/ams/authm", json=body)).status_code == 201
        body = {
            "service_uuid": made["uuid"], "host": "localhost", "auth_identifier": subject, "unique_key": "u-1",
            "auth_type": "x509",
        }  # fmt: skip
        assert (await client.post("/bindings/jane", json=body)).status_code == 201


@dataclass(frozen=True)
class Site:
    """A client of a running service; each login is a connection of its own."""

    url: str
    ca: str
    files: Path

    async def login(self, shown: Credentials) -> tuple[int, str]:
        """Return the status, and what is said of a refusal."""
        secure = ssl.create_default_context(cafile=self.ca)
        secure.load_cert_chain(*shown.write(self.files, "shown"))
        async with httpx.AsyncClient(verify=secure, trust_env=False) as client:
            answer = await client.get(f"{self.url}/v1/service-types/ams/hosts/localhost:authx509")
        body = answer.json()
        return answer.status_code, body["error"]["message"] if "error" in body else ""


async def is_let_in(site: Site, shown: Credentials) -> bool:
    return (await site.login(shown))[0] == 200


async def test_each_login_is_judged_at_its_own_time_and_by_the_folder_after_sighup(tmp_path: Path) -> None:
    ending, lasting, added = (
        Authority.make("Ending CA", not_after=NOW + DAY), Authority.make(), Authority.make("New CA"),
    )  # fmt: skip
    folder = tmp_path / "authorities"
    folder.mkdir()

    def trusts(authority: Authority, name: str) -> None:
        (folder / f"{name}.pem").write_bytes(authority.pem)
        (folder / f"{name}.r0").write_bytes(authority.crl(next_update=NOW + YEARS))

    trusts(ending, "0")
    trusts(lasting, "1")
    early, late, other = ending.signs(), lasting.signs(not_before=NOW + DAY), added.signs()
    clock = ManualClock(int(NOW.timestamp()) * 1000)
    with receiver(tmp_path, answers('{"token": "t"}'), keeps=True) as users:
        settings = {"client_ca": str(folder), "service_token": "the-key", "service_ca": users.ca}
        async with serving(tmp_path, clock=clock, failed_logins_per_minute=0, **settings) as (run, ca):
            site = Site(run.base_url, ca, tmp_path)
            await offered(site.url, site.ca, users.port, "CN=Jane")
            assert await site.login(early) == (200, "")
            assert await site.login(late) == (403, "Your certificate is not active yet")

            clock.advance(2 * DAY // MILLISECOND)
            assert await site.login(late) == (200, "")
            ended = "Your certificate is of a CA whose own has expired: CN=Ending CA"
            assert await site.login(early) == (403, ended)

            trusts(added, "2")
            assert (await site.login(other))[0] == 403  # the folder was looked at in this second
            os.kill(os.getpid(), signal.SIGHUP)
            await wait_until_async(lambda: is_let_in(site, other))
            assert await site.login(early) == (403, ended)
            assert await site.login(late) == (200, "")


async def test_a20_the_operations_port_tells_logins_and_handshakes(tmp_path: Path) -> None:
    async with serving(tmp_path) as (run, ca):
        login = f"{run.base_url}/v1/service-types/ams/hosts/ams.example:authx509"
        assert (await asyncio.to_thread(asked, login, ca))[0] == 400
        async with httpx.AsyncClient(trust_env=False) as client:
            said = (await client.get(f"{run.operations_url}/metrics")).text

    assert 'ams_authn_logins_total{result="refused"} 1.0' in said
    assert "ams_authn_handshakes_failed_total" in said


async def test_a18_whoever_asks_is_answered_before_the_connection_is_cut(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # an AMS that takes connections and says nothing
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with serving(tmp_path, ams_endpoint=endpoint, server_write_timeout=Seconds(0.5)) as (run, ca):
            status, body = await asyncio.to_thread(asked, f"{run.base_url}/v1/bindings", ca, authorization="bearer x")

    assert (status, json.loads(body)["error"]["status"]) == (504, "GATEWAY TIMEOUT")


@pytest.mark.parametrize(("open_files", "most"), [(20_000, 5_000), (1024, 512), (100, 50), (1, 1)])
def test_a20_connections_leave_files_for_all_else(monkeypatch: pytest.MonkeyPatch, open_files: int, most: int) -> None:
    """Without a file that is free no service can be asked, and no line of the audit log be written."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (open_files, open_files))
    assert bearable(AuthnSettings(max_connections=5_000)) == most


async def test_a12_whoever_pretends_to_be_a_proxy_does_not_fill_the_audit_log(tmp_path: Path) -> None:
    async with serving(tmp_path, proxy_header="shown", proxy_names=("CN=proxy",)) as (run, ca):
        for _ in range(EACH + 2):
            status, _ = await asyncio.to_thread(asked, f"{run.base_url}/v1/bindings", ca, shown="x")
            assert status == 403

    lines = [json.loads(line) for line in (tmp_path / "data" / "authn-audit.jsonl").read_text().splitlines()]
    assert [(each["action"], each["resource"], each.get("times", 1)) for each in lines] == [
        *[("login", "/bindings", 1)] * EACH,
        ("login", "/bindings", 2),
    ]


@pytest.mark.parametrize(
    ("setting", "text"), [("client_ca", "client_ca .*none: No such file"), ("ams_ca", "ams_ca .*none: No such file")]
)
async def test_a_missing_folder_or_file_of_cas_stops_the_start(tmp_path: Path, setting: str, text: str) -> None:
    given = {"ams_endpoint": "https://127.0.0.1:1", setting: str(tmp_path / "none")}
    with pytest.raises(BadSettings, match=text):
        async with serving(tmp_path, **given):
            pass


async def test_events_older_than_their_days_go_from_the_table(tmp_path: Path) -> None:
    """Every login is one."""
    (data := tmp_path / "data").mkdir()
    (data / "authn.lock").touch()
    store = await Store.open(sqlite_url(str(data / "authn.db")), bytes(32))
    await AuditRecords(store.database, audit).add([event(0)])
    await store.close()
    async with serving(tmp_path, secrets_key="00" * 32, audit_days=1):
        with contextlib.closing(sqlite3.connect(data / "authn.db", check_same_thread=False)) as table:
            await asyncio.to_thread(wait_until, lambda: not table.execute("SELECT * FROM authn_audit").fetchall())


def test_a_folder_is_taken_by_one_and_also_by_ams(tmp_path: Path) -> None:
    for first, second in ((AuthnFolder, Folder), (Folder, AuthnFolder)):
        data = str(tmp_path / first.__name__)
        one, other = first.take(data), second.take(data)
        with pytest.raises(Unusable, match="in use by another"):
            AuthnFolder.take(data)
        one.release()
        other.release()


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(Unusable, match=r"holds other files \(letters.txt"):
        AuthnFolder.take(str(tmp_path))


def test_a_management_key_is_kept_and_an_empty_one_is_not_taken(tmp_path: Path) -> None:
    folder = AuthnFolder.take(str(tmp_path / "data"))
    made = folder.management_key("")

    assert folder.management_key("") == made
    assert folder.management_key("given") == "given"
    Path(folder.key).write_text("")
    with pytest.raises(Unusable, match="is empty"):
        folder.management_key("")
    folder.release()
