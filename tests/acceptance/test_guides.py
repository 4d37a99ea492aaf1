import contextlib
import runpy
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from ams.push.delivery import key, new_secret, signatures
from tests.support.documents import (
    ROOT,
    Step,
    block,
    environment,
    follow,
    is_shown,
    make_clone,
    run,
    run_examples,
    steps,
    write_programs,
)
from tests.support.service import live_service

pytestmark = [pytest.mark.acceptance, pytest.mark.curl, pytest.mark.openssl]

TUTORIAL = ROOT / "docs" / "tutorial" / "first-message.md"
PYTHON = ROOT / "docs" / "tutorial" / "python.md"
CLIENT = ROOT / "docs" / "reference" / "client.md"
PUSH = ROOT / "docs" / "tutorial" / "push.md"
RECEIVING = ROOT / "docs" / "how-to" / "receive-push.md"
APART = ROOT / "docs" / "how-to" / "run-push-apart.md"
BOTH = ROOT / "docs" / "how-to" / "run-ams-and-the-certificate-service.md"
CERTIFICATES = ROOT / "docs" / "how-to" / "log-in-with-certificates.md"
IDENTITY = ROOT / "docs" / "how-to" / "log-in-with-openid-connect.md"
ACCESS = ROOT / "docs" / "how-to" / "control-access.md"
WORK = ROOT / "docs" / "how-to" / "work-on-a-backlog.md"
GUIDES = ("back-up", "check-messages", "declare-resources", "keep-messages", "least-privilege-tokens", "replay")
NEEDS_A_PROJECT = [ROOT / "docs" / "how-to" / f"{name}.md" for name in GUIDES]


SECONDS = 30.0
"""Until something that takes moments has surely failed."""


@contextlib.contextmanager
def served(command: str, clone: Path) -> Iterator[str]:
    """Start a server as a document says, the service on a free port; yields where it is when it is ready."""
    ports = ("AMS_PORT", "AMS_OPS_PORT", "AMS_AUTHN_PORT", "AMS_AUTHN_OPS_PORT")
    free_ports = environment(**dict.fromkeys(ports, "0"), no_proxy="localhost")
    with subprocess.Popen(
        shlex.split(command.replace("\\\n", "")),
        cwd=clone,
        env=free_ports,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[1]
        finally:
            server.send_signal(signal.SIGTERM)


class Receiver:
    """The receiver of a document, in a terminal of its own."""

    def __init__(self, document: Path, clone: Path) -> None:
        self._command = shlex.split(block(document, "sh receiver"))
        self._clone = clone
        self._shown = clone / "receiver.shown"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start it, and stop it at the end."""
        with (
            self._shown.open("a") as shown,
            subprocess.Popen(self._command, cwd=self._clone, stdout=shown, stderr=subprocess.DEVNULL) as process,
        ):
            try:
                self._until_it_listens()
                yield
            finally:
                process.kill()

    def shows(self, text: str) -> bool:
        """Whether it shows this, now or in a while."""
        return _soon(lambda: is_shown(text, self._shown.read_text()))

    def _until_it_listens(self) -> None:
        def listens() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return True
            return False

        assert _soon(listens)


def _soon(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def places(endpoint: str, receiver: Receiver) -> dict[str, str]:
    """Return what stands for the places that documents about push name."""
    return {"localhost:8080": urlsplit(endpoint).netloc, "8443": str(receiver.port)}


def test_the_tutorial_works_line_by_line(tmp_path: Path) -> None:
    make_clone(tmp_path)
    with served(block(TUTORIAL, "sh service"), tmp_path) as endpoint:
        follow(TUTORIAL, tmp_path, endpoint)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with what the first tutorial leaves behind: the project `garden` with a topic `readings`."""
    clone = tmp_path_factory.mktemp("begun")
    make_clone(clone)
    with served(block(TUTORIAL, "sh service"), clone) as endpoint:
        token = (clone / "ams-data" / "admin.token").read_text().strip()
        trust = ssl.create_default_context(cafile=clone / "ams-data" / "ca.pem")
        with httpx.Client(
            base_url=endpoint, headers={"x-api-key": token}, verify=trust, trust_env=False, timeout=SECONDS
        ) as client:
            topic = "/v1/projects/garden/topics/readings"
            before = {"messages": [{"data": "c29pbA=="}, {"data": "c29pbA=="}]}
            for method, path, body in (
                ("POST", "/v1/projects/garden", {}),
                ("PUT", topic, {}),
                ("POST", f"{topic}:publish", before),
            ):
                assert client.request(method, path, json=body).status_code == 200
    return clone


@pytest.fixture
def garden(begun: Path, tmp_path: Path) -> Path:
    """A copy of it, for one reader."""
    return shutil.copytree(begun, tmp_path / "clone", symlinks=True)


@pytest.mark.long
def test_the_tutorial_of_push_works_line_by_line(garden: Path) -> None:
    receiver = Receiver(PUSH, garden)
    with served(block(PUSH, "sh service"), garden) as endpoint:
        write_programs(PUSH, garden, endpoint, places(endpoint, receiver))
        with receiver.running():
            follow(PUSH, garden, endpoint, instead=places(endpoint, receiver))
            assert receiver.shows(block(PUSH, "text receiver"))
        away = run(block(PUSH, "sh away"), garden, AMS_ENDPOINT=endpoint, AMS_PROJECT="garden")
        with receiver.running():
            assert receiver.shows(2 * block(PUSH, "text receiver"))

    assert away.returncode == 0, away.stdout
    assert is_shown(block(PUSH, "text away"), away.stdout)


@pytest.mark.long
def test_push_workers_apart_deliver_as_their_guide_says(garden: Path) -> None:
    receiver = Receiver(PUSH, garden)
    with served(block(APART, "sh service"), garden) as endpoint:
        write_programs(PUSH, garden, endpoint, places(endpoint, receiver))
        token = run(block(APART, "sh token"), garden, AMS_ENDPOINT=endpoint)
        assert token.returncode == 0, token.stdout
        workers = block(APART, "sh push").replace("https://localhost:8080", endpoint)
        with served(workers, garden), served(workers, garden), receiver.running():
            follow(APART, garden, endpoint, instead=places(endpoint, receiver))
            assert receiver.shows("0 tonight")


@pytest.mark.long
def test_a_certificate_publishes_as_its_guide_says(tmp_path: Path) -> None:
    make_clone(tmp_path)
    authorities, *rest = steps(CERTIFICATES)
    made = run(authorities.commands, tmp_path)
    assert made.returncode == 0, made.stdout
    with (
        served(block(CERTIFICATES, "sh service"), tmp_path) as endpoint,
        served(block(CERTIFICATES, "sh certificates"), tmp_path) as certificates,
    ):
        commands = "\n".join(each.commands for each in rest).replace("8080", endpoint.rpartition(":")[2])
        done = run(commands, tmp_path, AMS_ENDPOINT=endpoint, AMS_AUTHN_ENDPOINT=certificates)

    assert done.returncode == 0, done.stdout
    assert is_shown("...".join(["", *(each.shown for each in rest if each.shown)]), done.stdout)


@pytest.mark.long
def test_a_client_of_both_services_needs_one_ca_as_the_guide_says(tmp_path: Path) -> None:
    make_clone(tmp_path)
    authority, lists, *rest = steps(BOTH)
    made = run(authority.commands + lists.commands, tmp_path)
    assert made.returncode == 0, made.stdout
    with (
        served(block(BOTH, "sh service"), tmp_path) as endpoint,
        served(block(BOTH, "sh certificates"), tmp_path) as certificates,
    ):
        ports = {named: place.rpartition(":")[2] for named, place in (("8080", endpoint), ("8443", certificates))}
        write_programs(BOTH, tmp_path, endpoint, ports)
        commands = "\n".join(each.commands for each in rest)
        for named, port in ports.items():
            commands = commands.replace(named, port)
        done = run(commands, tmp_path)  # the page itself says where both are

    assert done.returncode == 0, done.stdout
    assert is_shown("...".join(["", *(each.shown for each in rest if each.shown)]), done.stdout)


@pytest.mark.long
def test_a_token_of_an_issuer_publishes_as_its_guide_says(tmp_path: Path) -> None:
    make_clone(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    file, *rest = [Step(each.commands.replace("9400", port), each.shown) for each in steps(IDENTITY)]
    made = run(file.commands, tmp_path)
    assert made.returncode == 0, made.stdout
    with (
        served(block(IDENTITY, "sh issuer").replace("9400", port), tmp_path),
        served(block(IDENTITY, "sh service"), tmp_path) as endpoint,
    ):
        commands = "\n".join(each.commands for each in rest).replace("https://localhost:8080", endpoint)
        done = run(commands, tmp_path, AMS_ENDPOINT=endpoint)

    assert done.returncode == 0, done.stdout
    assert is_shown("...".join(["", *(each.shown for each in rest if each.shown)]), done.stdout)


@pytest.mark.long
def test_the_receiver_of_the_guide_to_push_checks_what_it_gets_and_keeps_it_once(garden: Path) -> None:
    receiver = Receiver(RECEIVING, garden)
    with served(block(PUSH, "sh service"), garden) as endpoint:
        write_programs(RECEIVING, garden, endpoint, places(endpoint, receiver))
        with receiver.running():
            follow(RECEIVING, garden, endpoint, instead=places(endpoint, receiver))


def test_the_ten_lines_that_verify_a_signature_take_what_was_signed_and_nothing_else(tmp_path: Path) -> None:
    write_programs(RECEIVING, tmp_path, "")
    genuine = runpy.run_path(str(tmp_path / "verify.py"))["genuine"]
    secret, body, now = new_secret(), b'{"message": {}}', int(time.time())
    headers = {
        "webhook-id": "garden.keeper.0-0",
        "webhook-timestamp": str(now),
        "webhook-signature": signatures([key(new_secret()), key(secret)], "garden.keeper.0-0", now, body),
    }

    assert genuine(body, headers, secret)
    assert not genuine(body + b" ", headers, secret)
    assert not genuine(body, headers, new_secret())


@pytest.mark.long
@pytest.mark.parametrize("guide", NEEDS_A_PROJECT, ids=lambda guide: guide.stem)
def test_the_commands_of_a_guide_work(guide: Path, tmp_path: Path) -> None:
    make_clone(tmp_path)
    with live_service(tmp_path / "ams-data", "--tls-self-signed") as service:
        made = run(".venv/bin/ams projects create garden", tmp_path, AMS_ENDPOINT=service.base_url)
        assert made.returncode == 0, made.stdout

        follow(guide, tmp_path, service.base_url)


@pytest.mark.long
def test_the_commands_of_the_guide_to_access_work_with_its_roles_file(tmp_path: Path) -> None:
    make_clone(tmp_path)
    roles = tmp_path / "roles.toml"
    roles.write_text(block(ACCESS, "toml"))
    with live_service(tmp_path / "ams-data", "--tls-self-signed", "--roles-file", str(roles)) as service:
        made = run(".venv/bin/ams projects create garden", tmp_path, AMS_ENDPOINT=service.base_url)
        assert made.returncode == 0, made.stdout

        follow(ACCESS, tmp_path, service.base_url)


@pytest.mark.long
def test_the_programs_of_the_python_tutorial_work(tmp_path: Path) -> None:
    make_clone(tmp_path)
    with live_service(tmp_path / "ams-data", "--tls-self-signed") as service:
        write_programs(PYTHON, tmp_path, service.base_url)
        made = run(".venv/bin/ams projects create garden", tmp_path, AMS_ENDPOINT=service.base_url)
        assert made.returncode == 0, made.stdout

        follow(PYTHON, tmp_path, service.base_url)


@pytest.mark.long
def test_the_programs_of_the_guide_to_work_do_it(tmp_path: Path) -> None:
    make_clone(tmp_path)
    with live_service(tmp_path / "ams-data", "--tls-self-signed") as service:
        write_programs(WORK, tmp_path, service.base_url)
        made = run(".venv/bin/ams projects create garden", tmp_path, AMS_ENDPOINT=service.base_url)
        assert made.returncode == 0, made.stdout

        follow(WORK, tmp_path, service.base_url)


def test_the_examples_of_the_client_run(tmp_path: Path) -> None:
    make_clone(tmp_path)
    with live_service(tmp_path / "ams-data", "--tls-self-signed") as service:
        made = run(".venv/bin/ams projects create garden", tmp_path, AMS_ENDPOINT=service.base_url)
        assert made.returncode == 0, made.stdout

        run_examples(CLIENT, tmp_path, service.base_url)
