"""Common webhook receivers: one row for each, started with a certificate of the tests' CA.

Each is a small program of its kind in `receivers/`. It shows the text of FOLDER/hash at `/ams_verification_hash`. It
writes each delivery to a file in FOLDER: path, port of the other side, headers, and after an empty line the body. To
`/refuse` it answers 400 and `REASON`, to `/close` by closing the connection, where it can, to all else success.
"""

import contextlib
import shutil
import string
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from local_cluster.ports import free_port, listening
from local_cluster.processes import Process
from tests.support.waiting import wait_until

PROGRAMS = Path(__file__).parent / "receivers"
REASON = "no such bed"
SECONDS = 60.0  # to start; far more than that takes


class Place(NamedTuple):
    folder: Path
    environment: dict[str, str]

    @property
    def port(self) -> int:
        return int(self.environment["PORT"])


class Delivery(NamedTuple):
    path: str
    port: str  # of the other side: it identifies the connection
    headers: Sequence[tuple[str, str]]
    body: str


class RunningReceiver(NamedTuple):
    place: Place

    def url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.place.port}{path}"

    def show(self, text: str) -> None:
        (self.place.folder / "hash").write_text(text)

    def wait(self, path: str, enough: Callable[[list[Delivery]], bool]) -> list[Delivery]:
        def find_deliveries() -> list[Delivery]:
            found = map(_read_delivery, sorted(self.place.folder.glob("*.delivery")))
            return [each for each in found if each.path == path]

        wait_until(lambda: enough(find_deliveries()))
        return find_deliveries()


class Peer(NamedTuple):
    name: str
    command: Callable[[Place], Sequence[str]]

    keeps: bool = True  # whether it keeps connections
    closes: bool = True  # whether it closes a connection whose answer says so
    behind: bool = False  # whether it is a proxy before another receiver
    marks: Sequence[pytest.MarkDecorator] = ()

    def __str__(self) -> str:
        return self.name


def _python(program: str) -> Callable[[Place], Sequence[str]]:
    return lambda _: [sys.executable, str(PROGRAMS / program)]


def _server(module: str, certificate: str, key: str, *words: str) -> Callable[[Place], Sequence[str]]:
    """Return the command of a Python server, given its options for the TLS files."""

    def command(place: Place) -> Sequence[str]:
        tls = [certificate, place.environment["CERTIFICATE"], key, place.environment["KEY"]]
        return [sys.executable, "-m", module, *tls, *(word.format(port=place.port) for word in words)]

    return command


def _node(_: Place) -> Sequence[str]:
    return ["node", str(PROGRAMS / "on_node.js")]


def _go(place: Place) -> Sequence[str]:
    program = str(place.folder / "receiver")
    subprocess.run(["go", "build", "-o", program, str(PROGRAMS / "on_net_http.go")], check=True)
    return [program]


def _java(place: Place) -> Sequence[str]:
    certificate, key = (Path(place.environment[each]).read_bytes() for each in ("CERTIFICATE", "KEY"))
    chain = x509.load_pem_x509_certificates(certificate)
    packed = pkcs12.serialize_key_and_certificates(
        b"receiver",
        load_pem_private_key(key, None),
        chain[0],
        chain[1:],
        BestAvailableEncryption(b"receiver"),  # type: ignore[arg-type]
    )
    Path(place.environment["PKCS12"]).write_bytes(packed)
    subprocess.run(["javac", "-d", str(place.folder), str(PROGRAMS / "OnJdk.java")], check=True)
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", str(place.folder), "OnJdk"]


def _write_config(place: Place, name: str) -> str:
    written = place.folder / name
    written.write_text(string.Template((PROGRAMS / name).read_text()).substitute(place.environment))
    return str(written)


def _nginx(place: Place) -> Sequence[str]:
    return [_find_program("nginx"), "-e", "stderr", "-p", str(place.folder), "-c", _write_config(place, "nginx.conf")]


def _haproxy(place: Place) -> Sequence[str]:
    pair = (Path(place.environment[each]).read_text() for each in ("CERTIFICATE", "KEY"))
    Path(place.environment["COMBINED"]).write_text("".join(pair))
    return [_find_program("haproxy"), "-db", "-f", _write_config(place, "haproxy.cfg")]


FILES = ("--certfile", "--keyfile")
PEERS = [
    Peer("aiohttp", _python("on_aiohttp.py")),
    Peer("flask", _python("on_flask.py"), keeps=False),
    Peer("gunicorn", _server("gunicorn", *FILES, "--bind", "127.0.0.1:{port}", "on_flask:app"), keeps=False),
    Peer(
        "fastapi-uvicorn",
        _server("uvicorn", "--ssl-certfile", "--ssl-keyfile", "on_fastapi:app", "--http", "h11", "--port", "{port}"),
    ),
    Peer("fastapi-hypercorn", _server("hypercorn", *FILES, "--bind", "127.0.0.1:{port}", "on_fastapi:app")),
    Peer("tornado", _python("on_tornado.py")),
    Peer("twisted", _python("on_twisted.py")),
    Peer("node", _node, marks=[pytest.mark.node]),
    Peer("go", _go, marks=[pytest.mark.go]),
    Peer("jdk", _java, marks=[pytest.mark.jdk]),
    Peer("nginx", _nginx, behind=True, marks=[pytest.mark.nginx]),
    Peer("haproxy", _haproxy, behind=True, closes=False, marks=[pytest.mark.haproxy]),
]


def _find_program(program: str) -> str:
    """Return a program's path, or an empty text; Debian keeps proxies outside some users' PATH."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin") or ""


@contextlib.contextmanager
def run_receiver(peer: Peer, folder: Path, certificate: str, key: str) -> Iterator[RunningReceiver]:
    """Run a receiver during the block, with an empty folder, on a free port."""
    given = {"FOLDER": str(folder), "CERTIFICATE": certificate, "KEY": key, "PORT": str(free_port())}
    given |= {"BEHIND": str(free_port()), "PKCS12": str(folder / "pair.p12"), "COMBINED": str(folder / "pair.pem")}
    place = Place(folder, given)
    with contextlib.ExitStack() as stack:
        if peer.behind:
            behind = Place(folder, {"PORT": place.environment["BEHIND"], "FOLDER": str(folder)})
            stack.enter_context(_start_process("behind", _python("on_aiohttp.py")(behind), behind))
        stack.enter_context(_start_process(peer.name, peer.command(place), place))
        yield RunningReceiver(place)


@contextlib.contextmanager
def _start_process(name: str, command: Sequence[str], place: Place) -> Iterator[None]:
    environment = {**place.environment, "PYTHONPATH": str(PROGRAMS), "PYTHONWARNINGS": "default"}
    process = Process(name, command, place.folder / f"{name}.log", environment=environment)
    process.start()
    try:
        process.wait_until(lambda: listening(place.port), SECONDS)
        yield
    finally:
        process.kill()


def _read_delivery(file: Path) -> Delivery:
    head, _, body = file.read_text().partition("\n\n")
    path, port, *lines = head.split("\n")
    return Delivery(path, port, [(name, value) for name, _, value in (line.partition(": ") for line in lines)], body)
