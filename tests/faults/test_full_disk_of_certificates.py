"""The certificate service on a real disk that is full: logins go on, changes are refused in words, nothing is lost."""

import contextlib
import json
import ssl
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.faults.small_disk import MIB, SmallDisk, mounted
from tests.support.authorities import Authority
from tests.support.receiver import answers, receiver
from tests.support.service import CertificatePorts, live_certificate_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.mount, pytest.mark.long]

LIMITS = ("--min-free-bytes", "6MiB", "--reserve-bytes", "2MiB", "--token-seconds", "0s")


def error(text: str) -> dict[str, dict[str, object]]:
    return {"error": {"message": f"Database Error: {text}", "code": 500, "status": "INTERNAL SERVER ERROR"}}


NO_SPACE = error("Backend Error")
"""What is refused before it is tried, for want of space; what the disk had no space for is `NOT_STORED`."""
NOT_STORED = error("Internal error while querying datastore")
USERS = ("jane", "joe", "mary")
SPARE = 20  # bindings that are there to be deleted
LOGIN = "/service-types/ams/hosts/localhost:authx509"
MORE_THAN_A_PAGE_OF_LOG_LINES = 80


@dataclass
class Site:
    """A certificate service on a small disk, and what its clients were told."""

    disk: SmallDisk
    folder: Path
    authorities: Path
    token_service: tuple[str, ...]
    ports: CertificatePorts | None = None
    service_uuid: str = ""
    names: set[str] = field(default_factory=set)  # bindings that are there, by all that was answered
    logins: Counter[str] = field(default_factory=Counter)  # logins that were answered with a token
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self) -> None:
        data = self.disk.folder / "data"
        service = live_certificate_service(data, *LIMITS, *self.token_service, client_ca=self.authorities)
        self.ports = self.stack.enter_context(service)

    def kill(self) -> None:
        """SIGKILL the service; returns when it is gone."""
        assert self.ports is not None
        self.ports.process.kill()
        self.stack.close()

    def ask(self, method: str, path: str, body: object = None, *, user: str = "") -> httpx.Response:
        """Ask on a new connection, as a user with a certificate or with the management key."""
        assert self.ports is not None
        trust = ssl.create_default_context(cafile=str(self.disk.folder / "data" / "authn-tls" / "ca.pem"))
        if user:
            trust.load_cert_chain(self.folder / f"{user}.pem", self.folder / f"{user}.key")
        headers = {} if user else {"x-api-key": self.ports.key}
        with httpx.Client(verify=trust, trust_env=False, timeout=PATIENCE_SECONDS) as client:
            url = f"https://localhost:{self.ports.api}/v1{path}"
            return client.request(method, url, json=body, headers=headers)

    def log_in(self, user: str) -> httpx.Response:
        answer = self.ask("GET", LOGIN, user=user)
        if answer.status_code == 200:
            assert answer.json() == {"token": "t-1"}
            self.logins[user] += 1
        return answer

    def create(self, name: str) -> httpx.Response:
        """Bind the user of this name, as far as there is one."""
        body = {
            "service_uuid": self.service_uuid, "host": "localhost", "auth_identifier": f"CN={name}",
            "unique_key": "u-1", "auth_type": "x509",
        }  # fmt: skip
        answer = self.ask("POST", f"/bindings/{name}", body)
        if answer.status_code == 201:
            self.names.add(name)
        return answer

    def delete(self, name: str) -> httpx.Response:
        answer = self.ask("DELETE", f"/bindings/{name}")
        if answer.status_code == 204:
            self.names.discard(name)
        return answer

    def listed(self) -> set[str]:
        return {each["name"] for each in self.ask("GET", "/bindings").json()["bindings"]}

    def recorded(self) -> Counter[str]:
        """Return the logins of each user in the audit log."""
        events = self.ask("GET", "/audit?action=login&result=done&pageSize=1000").json()["events"]
        return Counter(each["actor"].removeprefix("CN=") for each in events)

    def fill_until_a_login_has_no_line(self) -> None:
        """Let the stranger take all space, also what the service gives back, until not even an event is written."""
        log = self.disk.folder / "data" / "authn-audit.jsonl"

        def is_full() -> bool:
            self.disk.fill()
            size = log.stat().st_size
            assert self.log_in("jane").status_code == 200
            return log.stat().st_size == size

        wait_until(is_full)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    authority = Authority.make("Grid CA")
    trusted, disk_folder = tmp_path / "trusted", tmp_path / "disk"
    for each in (trusted, disk_folder):
        each.mkdir()
    (trusted / "grid.pem").write_bytes(authority.pem)
    (trusted / "grid.r0").write_bytes(authority.crl())
    for user in USERS:
        authority.signs(user).write(tmp_path, user)
    with (
        receiver(tmp_path, answers(json.dumps({"token": "t-1"})), keeps=True) as service,
        mounted(disk_folder, 32 * MIB) as disk,
    ):
        site = Site(disk, tmp_path, trusted, ("--service-ca", service.ca))
        with contextlib.ExitStack() as ends:
            ends.callback(lambda: site.stack.close())
            site.start()
            body = {
                "name": "ams", "hosts": ["localhost"], "auth_types": ["x509"], "auth_method": "headers", "type": "ams",
            }  # fmt: skip
            site.service_uuid = site.ask("POST", "/service-types", body).json()["uuid"]
            method = {"host": "localhost", "port": service.port, "headers": {"x-api-key": "secret"}}
            assert site.ask("POST", "/service-types/ams/authm", method).status_code == 201
            for name in (*USERS, *(f"spare{number}" for number in range(SPARE))):
                assert site.create(name).status_code == 201
            assert site.log_in("jane").status_code == 200
            yield site


def test_with_little_space_changes_are_refused_and_logins_and_deletions_go_on(site: Site) -> None:
    site.disk.fill(leave=3 * MIB)

    refused = site.create("late")
    assert (refused.status_code, refused.json()) == (500, NO_SPACE)
    renamed = site.ask("PUT", "/bindings/jane", {"unique_key": "u-2"})
    assert (renamed.status_code, renamed.json()) == (500, NO_SPACE)
    assert [site.log_in(user).status_code for user in USERS] == [200] * len(USERS), "first logins too"
    assert site.delete("spare0").status_code == 204

    site.disk.clear()
    wait_until(lambda: site.create("late").status_code == 201)
    site.kill()
    site.start()
    assert site.listed() == site.names
    wait_until(lambda: site.recorded() == site.logins)


def test_a_disk_that_is_full_to_the_last_byte_has_the_reserve_for_logins_deletions_and_their_events(site: Site) -> None:
    site.disk.fill()

    assert site.log_in("joe").status_code == 200, "the first one of this user is stored"
    assert site.delete("spare0").status_code == 204
    assert site.create("late").json() == NO_SPACE
    site.kill()
    site.start()

    assert site.listed() == site.names
    wait_until(lambda: site.recorded() == site.logins)


def test_without_even_the_reserve_known_users_log_in_and_whatever_was_answered_is_so_after_a_kill(site: Site) -> None:
    site.fill_until_a_login_has_no_line()

    for number in range(SPARE):
        site.disk.fill()
        assert site.create(f"late{number}").json() == NO_SPACE
        deleted = site.delete(f"spare{number}")
        assert deleted.status_code == 204 or deleted.json() == NOT_STORED
    for _ in range(MORE_THAN_A_PAGE_OF_LOG_LINES):
        site.disk.fill()
        assert site.log_in("jane").status_code == 200
    first = site.log_in("mary")
    assert first.status_code == 200 or first.json() == NOT_STORED

    site.disk.clear()
    wait_until(lambda: site.create("again").status_code == 201)
    assert site.log_in("mary").status_code == 200
    wait_until(lambda: site.recorded() == site.logins)
    site.kill()
    site.start()
    assert site.listed() == site.names
    assert site.recorded() == site.logins


def test_a_start_on_a_full_disk_lets_users_in_and_takes_changes_again_by_itself(site: Site) -> None:
    site.disk.fill()
    site.kill()
    site.start()

    assert site.log_in("jane").status_code == 200
    assert site.create("late").json() == NO_SPACE
    assert site.listed() == site.names

    site.disk.clear()
    wait_until(lambda: site.create("late").status_code == 201)
    wait_until(lambda: site.recorded() == site.logins)
