"""The certificate service on a full real disk: logins succeed, changes are refused with a reason, nothing is lost."""

import contextlib
import json
import ssl
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.faults.small_disk import LOG_LINES_PER_PAGE, MIB, SmallDisk, mount_disk
from tests.support.authorities import Authority
from tests.support.receiver import answers, receiver
from tests.support.service import CertificatePorts, live_certificate_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.mount, pytest.mark.long]

LIMITS = ("--min-free-bytes", "6MiB", "--reserve-bytes", "2MiB", "--token-seconds", "0s")
NO_SPACE = 500, "Database Error: Backend Error"
USERS = ("jane", "joe", "mary")
SPARE_BINDINGS = 20  # bindings to delete
LOGIN = "/service-types/ams/hosts/localhost:authx509"
OK, CREATED, DELETED = (200, ""), (201, ""), (204, "")


def outcome(answer: httpx.Response) -> tuple[int, str]:
    """Return the status, and the text of an error."""
    return answer.status_code, answer.json()["error"]["message"] if answer.is_error else ""


@dataclass
class CertificateSite:
    """A certificate service on a small disk, and the answers to its clients."""

    disk: SmallDisk
    folder: Path
    authorities: Path
    token_service: tuple[str, ...]
    ports: CertificatePorts | None = None
    service_uuid: str = ""
    names: set[str] = field(default_factory=set)  # existing bindings, by all answers
    logins: Counter[str] = field(default_factory=Counter)  # logins that were answered with a token
    stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def start(self) -> None:
        data = self.disk.folder / "data"
        service = live_certificate_service(data, *LIMITS, *self.token_service, client_ca=self.authorities)
        self.ports = self.stack.enter_context(service)

    def restart(self) -> None:
        """SIGKILL the service, and restart it."""
        assert self.ports is not None
        self.ports.process.kill()
        self.stack.close()
        self.start()

    def ask(self, method: str, path: str, body: object = None, *, user: str = "") -> httpx.Response:
        """Send a request on a new connection, as a user with a certificate or with the management key."""
        assert self.ports is not None
        trust = ssl.create_default_context(cafile=str(self.disk.folder / "data" / "authn-tls" / "ca.pem"))
        if user:
            trust.load_cert_chain(self.folder / f"{user}.pem", self.folder / f"{user}.key")
        headers = {} if user else {"x-api-key": self.ports.key}
        with httpx.Client(verify=trust, trust_env=False, timeout=PATIENCE_SECONDS) as client:
            url = f"https://localhost:{self.ports.api}/v1{path}"
            return client.request(method, url, json=body, headers=headers)

    def log_in(self, user: str) -> tuple[int, str]:
        answer = self.ask("GET", LOGIN, user=user)
        if answer.status_code == 200:
            assert answer.json() == {"token": "t-1"}
            self.logins[user] += 1
        return outcome(answer)

    def create(self, name: str) -> tuple[int, str]:
        """Bind the user of this name; the disk may be full."""
        body = {
            "service_uuid": self.service_uuid, "host": "localhost", "auth_identifier": f"CN={name}",
            "unique_key": "u-1", "auth_type": "x509",
        }  # fmt: skip
        answer = self.ask("POST", f"/bindings/{name}", body)
        if answer.status_code == 201:
            self.names.add(name)
        return outcome(answer)

    def delete(self, name: str) -> tuple[int, str]:
        answer = self.ask("DELETE", f"/bindings/{name}")
        if answer.status_code == 204:
            self.names.discard(name)
        return outcome(answer)

    def restarts_with_all_that_was_answered(self) -> None:
        self.restart()
        assert {each["name"] for each in self.ask("GET", "/bindings").json()["bindings"]} == self.names
        wait_until(lambda: self.count_logins() == self.logins)

    def count_logins(self) -> Counter[str]:
        events = self.ask("GET", "/audit?action=login&result=done&pageSize=1000").json()["events"]
        logins = Counter[str]()
        for each in events:
            logins[each["actor"].removeprefix("CN=")] += each.get("times", 1)
        return logins

    def fill_until_a_login_has_no_line(self) -> None:
        """Let the foreign file take all space, also what the service frees, until not even an event is written."""
        log = self.disk.folder / "data" / "authn-audit.jsonl"

        def is_full() -> bool:
            self.disk.fill()
            size = log.stat().st_size
            assert self.log_in("jane") == OK
            return log.stat().st_size == size

        wait_until(is_full)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[CertificateSite]:
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
        mount_disk(disk_folder, 32 * MIB) as disk,
    ):
        site = CertificateSite(disk, tmp_path, trusted, ("--service-ca", service.ca))
        with contextlib.ExitStack() as ends:
            ends.callback(lambda: site.stack.close())
            site.start()
            body = {
                "name": "ams", "hosts": ["localhost"], "auth_types": ["x509"], "auth_method": "headers", "type": "ams",
            }  # fmt: skip
            site.service_uuid = site.ask("POST", "/service-types", body).json()["uuid"]
            method = {"host": "localhost", "port": service.port, "headers": {"x-api-key": "secret"}}
            assert site.ask("POST", "/service-types/ams/authm", method).status_code == 201
            for name in (*USERS, *(f"spare{number}" for number in range(SPARE_BINDINGS))):
                assert site.create(name) == CREATED
            assert site.log_in("jane") == OK
            yield site


def test_vital_calls_work_while_changes_fail_with_little_or_no_space_and_after_a_start(site: CertificateSite) -> None:
    for user, spare, leave in (("joe", "spare0", 3 * MIB), ("mary", "spare1", 0)):
        site.disk.fill(leave)
        assert site.create("late") == NO_SPACE
        assert outcome(site.ask("PUT", "/bindings/jane", {"unique_key": "u-2"})) == NO_SPACE
        assert [site.log_in(each) for each in (user, "jane")] == [OK, OK], "the first one of a user is stored"
        assert site.delete(spare) == DELETED
    site.restarts_with_all_that_was_answered()

    assert (site.log_in("jane"), site.create("late")) == (OK, NO_SPACE)
    site.disk.clear()
    wait_until(lambda: site.create("late") == CREATED)
    site.restarts_with_all_that_was_answered()


def test_without_even_the_reserve_known_users_log_in_and_answers_hold_after_a_kill(site: CertificateSite) -> None:
    site.fill_until_a_login_has_no_line()

    for number in range(SPARE_BINDINGS):
        site.disk.fill()
        assert site.create(f"late{number}") == NO_SPACE
        assert site.delete(f"spare{number}") in (DELETED, NO_SPACE)
    for _ in range(LOG_LINES_PER_PAGE):
        site.disk.fill()
        assert site.log_in("jane") == OK
    assert site.log_in("mary") in (OK, NO_SPACE)

    site.disk.clear()
    wait_until(lambda: site.create("again") == CREATED)
    assert site.log_in("mary") == OK
    # On a full disk more than thirty in a minute become one event at the end of the minute.
    wait_until(lambda: site.count_logins() == site.logins, 3 * PATIENCE_SECONDS)
    site.restarts_with_all_that_was_answered()
