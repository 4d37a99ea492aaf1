import contextlib
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest
from google.cloud import pubsub_v1
from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

from ams.push.delivery_request import key, new_secret, signatures
from local_cluster.ports import free_port, listening
from tests.support.dead_letters import dead_letter
from tests.support.documents import (
    ROOT,
    Step,
    block,
    environment,
    follow,
    is_shown,
    make_clone,
    run_examples,
    run_script,
    steps,
    write_programs,
)
from tests.support.service import LiveService, live_service
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.curl, pytest.mark.openssl]

TUTORIAL = ROOT / "docs" / "tutorial" / "first-message.md"
PUSH = ROOT / "docs" / "tutorial" / "push.md"
HOW_TO, REFERENCE = ROOT / "docs" / "how-to", ROOT / "docs" / "reference"
HTTP = ROOT / "docs" / "tutorial" / "http.md"
RECEIVING = HOW_TO / "receive-push.md"
READING = REFERENCE / "reading.md"
APART = REFERENCE / "push.md"
CERTIFICATES = HOW_TO / "log-in-with-certificates.md"
IDENTITY = HOW_TO / "log-in-with-openid-connect.md"
DEAD_LETTERS = HOW_TO / "dead-letters.md"
PAGES = (
    *(f"how-to/{each}" for each in ("back-up", "check-messages", "control-access", "declare-resources")),
    *(f"how-to/{each}" for each in ("keep-and-replay", "work-on-a-backlog")),
)
WORKER = "the-token-of-the-push-worker"
PUSH_ENABLED = ("--push-enabled", "--push-worker-token", WORKER)
GARDEN = """\
export AMS_PROJECT=garden
.venv/bin/ams projects create garden
"""
BEGUN = """
.venv/bin/ams topics create readings
printf soil | .venv/bin/ams publish readings --file -
printf soil | .venv/bin/ams publish readings --file -
"""
WATERED = """
.venv/bin/ams topics create readings
.venv/bin/ams topics create readings-dead
.venv/bin/ams subs create watering --topic readings
.venv/bin/ams subs push-config watering --url https://pump.example/in --dead-letter-topic readings-dead
printf one | .venv/bin/ams publish readings --file -
printf two | .venv/bin/ams publish readings --file - --attr pump=7
printf three | .venv/bin/ams publish readings --file -
"""


def successful_output(script: str, clone: Path, **variables: str) -> str:
    done = run_script(script, clone, **variables)
    assert done.returncode == 0, done.stdout
    return done.stdout


@contextlib.contextmanager
def garden_service(clone: Path, *flags: str, before: str = "") -> Iterator[LiveService]:
    make_clone(clone)
    with live_service(clone / "ams-data", "--tls-self-signed", *flags) as service:
        successful_output(GARDEN + before, clone, AMS_ENDPOINT=service.base_url)
        yield service


@contextlib.contextmanager
def start_server(command: str, clone: Path) -> Iterator[str]:
    """Start a server as a document shows, the service on a free port; yields its address when it is ready."""
    ports = ("AMS_PORT", "AMS_OPS_PORT", "AMS_AUTHN_PORT", "AMS_AUTHN_OPS_PORT")
    free_ports = environment(**dict.fromkeys(ports, "0"), no_proxy="localhost")
    words = shlex.split(command.replace("\\\n", ""))
    with subprocess.Popen(
        words, cwd=clone, env=free_ports, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[1]
        finally:
            server.send_signal(signal.SIGTERM)


class Receiver:
    def __init__(self, document: Path, clone: Path) -> None:
        self._command = shlex.split(block(document, "sh receiver"))
        self._clone = clone
        self._shown = clone / "receiver.shown"
        self.port = free_port()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        with (
            self._shown.open("a") as shown,
            subprocess.Popen(self._command, cwd=self._clone, stdout=shown, stderr=subprocess.DEVNULL) as process,
        ):
            try:
                wait_until(lambda: listening(self.port))
                yield
            finally:
                process.kill()

    def wait_shown(self, text: str) -> None:
        wait_until(lambda: is_shown(text, self._shown.read_text()))


def carry_out(todo: list[Step], clone: Path, instead: dict[str, str], **variables: str) -> None:
    """Run steps in one shell, and compare all output with the document."""
    commands = "\n".join(each.commands for each in todo)
    for named, here in instead.items():
        commands = commands.replace(named, here)
    shown = "...".join(["", *(each.shown for each in todo if each.shown)])
    assert is_shown(shown, successful_output(commands, clone, **variables))


def address_replacements(endpoint: str, receiver: Receiver) -> dict[str, str]:
    """Return replacements for the addresses in the documents about push."""
    return {"localhost:8080": urlsplit(endpoint).netloc, "8443": str(receiver.port)}


@pytest.mark.long
def test_the_tutorial_works_line_by_line(tmp_path: Path) -> None:
    make_clone(tmp_path)
    with start_server(block(TUTORIAL, "sh service"), tmp_path) as endpoint:
        write_programs(TUTORIAL, tmp_path, endpoint)
        follow(TUTORIAL, tmp_path, endpoint)


@pytest.fixture(scope="module")
def tutorial_clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone after the first tutorial: the project `garden` with a topic `readings`."""
    clone = tmp_path_factory.mktemp("begun")
    make_clone(clone)
    with start_server(block(TUTORIAL, "sh service"), clone) as endpoint:
        successful_output(GARDEN + BEGUN, clone, AMS_ENDPOINT=endpoint)
    return clone


@pytest.fixture
def garden(tutorial_clone: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tutorial_clone, tmp_path / "clone", symlinks=True)


@pytest.mark.long
def test_the_tutorial_of_push_works_line_by_line(garden: Path) -> None:
    receiver = Receiver(PUSH, garden)
    with start_server(block(PUSH, "sh service"), garden) as endpoint:
        write_programs(PUSH, garden, endpoint, address_replacements(endpoint, receiver))
        with receiver.running():
            follow(PUSH, garden, endpoint, instead=address_replacements(endpoint, receiver))
            receiver.wait_shown(block(PUSH, "text receiver"))
        away = successful_output(block(PUSH, "sh away"), garden, AMS_ENDPOINT=endpoint, AMS_PROJECT="garden")
        with receiver.running():
            receiver.wait_shown(2 * block(PUSH, "text receiver"))

    assert is_shown(block(PUSH, "text away"), away)


@pytest.mark.long
def test_push_workers_apart_deliver_as_their_guide_says(garden: Path) -> None:
    receiver = Receiver(PUSH, garden)
    with start_server(block(APART, "sh service"), garden) as endpoint:
        write_programs(PUSH, garden, endpoint, address_replacements(endpoint, receiver))
        successful_output(block(APART, "sh token"), garden, AMS_ENDPOINT=endpoint)
        workers = block(APART, "sh push").replace("https://localhost:8080", endpoint)
        with start_server(workers, garden), start_server(workers, garden), receiver.running():
            commands = block(APART, "sh apart").replace("8443", str(receiver.port))
            successful_output(commands, garden, AMS_ENDPOINT=endpoint)
            receiver.wait_shown("0 tonight")


@pytest.mark.long
def test_a_certificate_publishes_with_one_ca_for_both_services_as_its_guide_says(tmp_path: Path) -> None:
    make_clone(tmp_path)
    authority, lists, *rest = steps(CERTIFICATES)
    successful_output(authority.commands + lists.commands, tmp_path)
    with (
        start_server(block(CERTIFICATES, "sh service"), tmp_path) as endpoint,
        start_server(block(CERTIFICATES, "sh certificates"), tmp_path) as certificates,
    ):
        ports = {named: place.rpartition(":")[2] for named, place in (("8080", endpoint), ("8443", certificates))}
        write_programs(CERTIFICATES, tmp_path, endpoint, ports)
        carry_out(rest, tmp_path, ports)  # the page itself says where both are


@pytest.mark.long
def test_a_token_of_an_issuer_publishes_as_its_guide_says(tmp_path: Path) -> None:
    make_clone(tmp_path)
    port = str(free_port())
    file, *rest = [Step(each.commands.replace("9400", port), each.shown) for each in steps(IDENTITY)]
    successful_output(file.commands, tmp_path)
    with (
        start_server(block(IDENTITY, "sh issuer").replace("9400", port), tmp_path),
        start_server(block(IDENTITY, "sh service"), tmp_path) as endpoint,
    ):
        carry_out(rest, tmp_path, {"https://localhost:8080": endpoint}, AMS_ENDPOINT=endpoint)


@pytest.mark.long
def test_the_receiver_of_the_guide_to_push_checks_what_it_gets_and_keeps_it_once(garden: Path) -> None:
    receiver = Receiver(RECEIVING, garden)
    with start_server(block(PUSH, "sh service"), garden) as endpoint:
        write_programs(RECEIVING, garden, endpoint, address_replacements(endpoint, receiver))
        with receiver.running():
            follow(RECEIVING, garden, endpoint, instead=address_replacements(endpoint, receiver))


def test_the_ten_lines_that_verify_a_signature_take_what_was_signed_and_nothing_else(tmp_path: Path) -> None:
    write_programs(RECEIVING, tmp_path, "")
    genuine = runpy.run_path(str(tmp_path / "verify.py"))["genuine"]
    secret, body, now = new_secret(), b'{"message": {}}', int(time.time())
    headers = {
        "webhook-id": "garden.keeper.0-0", "webhook-timestamp": str(now),
        "webhook-signature": signatures([key(new_secret()), key(secret)], "garden.keeper.0-0", now, body),
    }  # fmt: skip

    assert genuine(body, headers, secret)
    assert not genuine(body + b" ", headers, secret)
    assert not genuine(body, headers, new_secret())


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_and_programs_of_a_page_work(page: str, tmp_path: Path) -> None:
    document, roles = ROOT / "docs" / f"{page}.md", tmp_path / "roles.toml"
    flags: tuple[str, ...] = ()
    if page == "how-to/control-access":
        roles.write_text(block(document, "toml"))
        flags = "--roles-file", str(roles)
    with garden_service(tmp_path, *flags) as service:
        write_programs(document, tmp_path, service.base_url)
        follow(document, tmp_path, service.base_url)


@pytest.mark.long
def test_the_commands_of_the_guide_to_dead_letters_work(tmp_path: Path) -> None:
    with garden_service(tmp_path, *PUSH_ENABLED, before=WATERED) as service:
        for offset, (reason, status) in enumerate([("Bad Request", 400), ("no such pump", 422)]):
            subscription = "projects/garden/subscriptions/watering"
            dead_letter(service.base_url, service.ca, WORKER, subscription, offset, reason, status)
        guide = tmp_path / DEAD_LETTERS.name
        guide.write_text(DEAD_LETTERS.read_text().replace(".venv/bin/ams topics create readings-dead\n", ""))

        follow(guide, tmp_path, service.base_url)


@pytest.mark.long
def test_the_examples_of_the_client_run(tmp_path: Path) -> None:
    with garden_service(tmp_path) as service:
        run_examples(REFERENCE / "client.md", tmp_path, service.base_url)


@pytest.mark.long
def test_the_http_api_answers_curl_as_shown(tmp_path: Path) -> None:
    make_clone(tmp_path)
    with live_service(tmp_path / "ams-data", "--tls-self-signed", *PUSH_ENABLED) as service:
        follow(HTTP, tmp_path, service.base_url)
        follow(READING, tmp_path, service.base_url)
        run_examples(READING, tmp_path, service.base_url)


@pytest.fixture
def running_demo(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[str]", list[str]]]:
    make_clone(tmp_path)
    command = [sys.executable, "-m", "demo", "--keep-serving", "--port", "0", "--messages", "600"]
    no_java = environment(JAVA_HOME="/nowhere")  # without the job on Spark at the end
    with subprocess.Popen(
        command, cwd=tmp_path, env=no_java, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            shown: list[str] = []
            for line in process.stdout:
                shown.append(line)
                if "ams --help" in line:
                    break
            assert process.poll() is None, "".join(shown)
            yield process, shown
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def test_the_commands_of_the_readme_and_of_make_run_work_beside_it_and_ctrl_c_ends_it_in_order(
    running_demo: tuple["subprocess.Popen[str]", list[str]], tmp_path: Path
) -> None:
    process, shown = running_demo
    endpoint = shown[0].split("ready at ")[1].split(",")[0]
    follow(ROOT / "README.md", tmp_path, endpoint)
    run_examples(ROOT / "README.md", tmp_path, endpoint)

    tried = successful_output(
        "".join(line for line in shown if line.startswith(("  curl", "  .venv", "  export"))), tmp_path
    )
    assert '"messageIds"' in tried
    assert '"receivedMessages":[{' in tried

    [emulator] = [line.strip().partition("=")[2] for line in shown if "PUBSUB_EMULATOR_HOST=" in line]
    with grpc.insecure_channel(emulator) as channel:
        publisher = pubsub_v1.PublisherClient(transport=PublisherGrpcTransport(channel=channel))
        topics = [each.name for each in publisher.list_topics(project="projects/demo")]
    assert "projects/demo/topics/metric_data" in topics

    process.send_signal(signal.SIGINT)
    ending, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Stopped; the data stay in ams-data." in ending
    assert ending.splitlines()[-1].startswith("demo: published 600 received 600 acknowledged 600 lost 0 duplicated 0")
    assert "Traceback" not in ending
