"""haproxy before nodes, or before one service, on loopback, with the configuration `deploy/` has for real machines."""

import contextlib
import grp
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from local_cluster.deployed import DEPLOY, haproxy_configuration
from local_cluster.ports import LOOPBACK, free_port, listening
from local_cluster.processes import DidNotStart, Process, Startable

START_SECONDS = 10.0
MAX_CLIENTS = 2000
"""Maximum number of clients; each takes two open files."""


PUBSUB_PORT = ":8085 "
"""Options of a deployed server line for Google's clients."""


class Backend(NamedTuple):
    """A node as haproxy sees it."""

    name: str
    port: int
    ops_port: int
    pubsub_port: int = 1
    """Port for Google's clients; without one the node serves none."""


class Haproxy(Startable):
    """haproxy on a free port, https with `certificate` (a PEM file with key and chain), its log in `haproxy.log`.

    It connects to the nodes by TLS, with certificates that `nodes_ca` has signed, or without it over plain HTTP.
    """

    def __init__(self, folder: Path, nodes: Sequence[Backend], certificate: Path, nodes_ca: Path | None = None) -> None:
        self.folder = folder.absolute()
        self.port = free_port()
        self.pubsub_port = free_port()
        self.figures_port = free_port()
        self._nodes = tuple(nodes)
        self._certificate = certificate
        self._nodes_ca = nodes_ca
        self._file = self.folder / "haproxy.cfg"
        self._socket = self.folder / "haproxy.sock"
        command = [program(), "-W", "-db", "-f", str(self._file)]
        self.process = Process("haproxy", command, self.folder / "haproxy.log")

    @property
    def endpoint(self) -> str:
        """Return `host:port`, the form the official library takes."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def url(self) -> str:
        """Return the base URL of the service."""
        return f"https://{self.endpoint}"

    @property
    def pubsub(self) -> str:
        """Return `host:port` of Google's Pub/Sub, by TLS."""
        return f"{LOOPBACK}:{self.pubsub_port}"

    def start(self) -> None:
        """Write the configuration, start, and return when it accepts connections. Raises `DidNotStart`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file.write_text(self._configuration())
        check(self._file)
        self.process.start()
        self.process.wait_until(self._answers, START_SECONDS)

    def reload(self) -> None:
        """Reload the configuration: a new process takes over, the old one finishes its connections."""
        self.process.send(signal.SIGUSR2)

    def stop(self) -> None:
        """End it at once."""
        self.process.kill()

    def states(self) -> Mapping[str, str]:
        """Return the health check state of each node: `UP`, `DOWN`, or between them. Empty when down."""
        with contextlib.suppress(OSError):
            return self._states()
        return {}

    def _states(self) -> dict[str, str]:
        fields = [line.split(",") for line in self._ask("show stat").splitlines() if line.startswith("ams_nodes,")]
        return {row[1]: row[17] for row in fields if row[1] != "BACKEND"}

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            return listening(self.port) and bool(self._ask("show info"))
        return False

    def _ask(self, command: str) -> str:
        return _send_command(self._socket, command)

    def _configuration(self) -> str:
        """Return the deployed configuration for our addresses, without the lines of an installed service."""
        text = haproxy_configuration()
        text = text.replace("log /dev/log local0", "log stdout format raw local0")
        text = text.replace("/run/haproxy/admin.sock", str(self._socket))
        text = text.replace("maxconn 20000", f"maxconn {MAX_CLIENTS}")
        text = re.sub(r"^ +(user|group) .*\n", "", text, flags=re.MULTILINE)
        text = text.replace("bind :443", f"bind {self.endpoint}").replace(
            "/etc/haproxy/ams.pem", str(self._certificate)
        )
        text = text.replace("bind :8443", f"bind {self.pubsub}")
        text = text.replace("bind 127.0.0.1:8405", f"bind {LOOPBACK}:{self.figures_port}")
        if self._nodes_ca is None:
            text = re.sub(r" ssl verify required ca-file \S+( no-check-ssl| alpn h2)?", "", text)
            text = re.sub(r"^ +default-server\n", "", text, flags=re.MULTILINE)
        text = text.replace("/etc/haproxy/nodes-ca.pem", str(self._nodes_ca))
        return re.sub(r"(^ +server .*\n)+", self._servers, text, flags=re.MULTILINE)

    def _servers(self, deployed: re.Match[str]) -> str:
        """Return server lines of our nodes, to replace a deployed list."""
        verified = "" if self._nodes_ca is None else " verifyhost localhost"
        if PUBSUB_PORT not in deployed[0]:
            lines = [f"{name} {LOOPBACK}:{port} port {ops_port}" for name, port, ops_port, _ in self._nodes]
        elif "track" in deployed[0]:
            lines = [f"{each.name} {LOOPBACK}:{each.pubsub_port} track ams_nodes/{each.name}" for each in self._nodes]
        else:
            lines = [f"{each.name} {LOOPBACK}:{each.pubsub_port}" for each in self._nodes]
        return "".join([f"    server {line}{verified}\n" for line in lines])


class SingleHaproxy(Startable):
    """haproxy before one service, by `deploy/haproxy/single.cfg` as it is: the environment sets what differs.

    https on a free port with `certificate` (a PEM file with key and chain), its log in `single.log`.
    """

    configuration = DEPLOY / "haproxy" / "single.cfg"

    def __init__(self, folder: Path, service: int, operations: int, certificate: Path, **other: object) -> None:
        """Take the two ports of the service; `other` sets more of the names in the file, such as `body_bytes`."""
        folder = folder.absolute()
        self.port = free_port()
        self.figures_port = free_port()
        here = {
            "LISTEN": f"{LOOPBACK}:{self.port}",
            "CERTIFICATE": certificate.absolute(),
            "SERVICE": f"{LOOPBACK}:{service}",
            "SERVICE_OPERATIONS": operations,
            "FIGURES": f"{LOOPBACK}:{self.figures_port}",
            "ADMIN_SOCKET": folder / "single.sock",
            **_ours(),
        } | {name.upper(): value for name, value in other.items()}
        environment = {f"PROXY_{name}": str(value) for name, value in here.items()}
        command = [program(), "-W", "-db", "-f", str(self.configuration)]
        self.process = Process("haproxy single", command, folder / "single.log", environment=environment)

    def start(self) -> None:
        """Start, and return when it accepts connections. Raises `DidNotStart`."""
        check(self.configuration, self.process.environment)
        self.process.start()
        self.process.wait_until(lambda: listening(self.port), START_SECONDS)

    def stop(self) -> None:
        """End it at once."""
        self.process.kill()


class MovingHaproxy(Startable):
    """haproxy before two services, one of which replaces the other: `deploy/haproxy/move.cfg` as it is.

    https on a free port with `certificate` (a PEM file with key and chain), its log in `move.log`. The map and the
    socket are in `folder`, where `ams migrate cut` finds them.
    """

    deployed = DEPLOY / "haproxy"

    def __init__(self, folder: Path, old: int, old_ca: Path, new: int, certificate: Path) -> None:
        """Take the ports of the services, the CA of the old one's certificate, and our certificate."""
        folder = folder.absolute()
        self.port = free_port()
        self.map, self.socket = folder / "ams-service.map", folder / "move.sock"
        here = {
            "LISTEN": f"{LOOPBACK}:{self.port}",
            "CERTIFICATE": certificate.absolute(),
            "OLD": f"{LOOPBACK}:{old}",
            "OLD_CA": old_ca.absolute(),
            "OLD_NAME": "localhost",
            "NEW": f"{LOOPBACK}:{new}",
            "MAP": self.map,
            "LUA": self.deployed / "hold.lua",
            "ADMIN_SOCKET": self.socket,
            **_ours(),
        }
        environment = {f"PROXY_{name}": str(value) for name, value in here.items()}
        command = [program(), "-W", "-db", "-f", str(self.deployed / "move.cfg")]
        self.process = Process("haproxy moving", command, folder / "move.log", environment=environment)

    @property
    def url(self) -> str:
        """Return the base URL of the service."""
        return f"https://localhost:{self.port}"

    def start(self) -> None:
        """Start with the old service active, and return when it accepts connections. Raises `DidNotStart`."""
        shutil.copyfile(self.deployed / "ams-service.map", self.map)
        check(self.deployed / "move.cfg", self.process.environment)
        self.process.start()
        self.process.wait_until(lambda: listening(self.port), START_SECONDS)

    def stop(self) -> None:
        """End it at once."""
        self.process.kill()

    def ask(self, command: str) -> str:
        """Send a command to the runtime API."""
        return _send_command(self.socket, command)


def _ours() -> dict[str, object]:
    """Return the environment that differs from a real machine."""
    return {
        "LOG": "stdout",
        "USER": pwd.getpwuid(os.getuid()).pw_name,
        "GROUP": grp.getgrgid(os.getgid()).gr_name,
        "CONNECTIONS": MAX_CLIENTS,
    }


def _send_command(path: Path, command: str) -> str:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(f"{command}\n".encode())
        with connection.makefile() as answer:
            return answer.read()


def program() -> str:
    """Return haproxy's path; Debian's is not on every user's PATH."""
    found = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise DidNotStart("haproxy is missing (the Debian package haproxy)")
    return found


def check(configuration: Path, environment: Mapping[str, str] | None = None) -> None:
    """Check a configuration. Raises `DidNotStart` with haproxy's errors or warnings.

    `environment` is added to ours.
    """
    command = [program(), "-c", "-f", str(configuration)]
    env = {**os.environ, **(environment or {})}
    run = subprocess.run(command, capture_output=True, text=True, timeout=20, env=env)
    if run.returncode or "WARNING" in run.stderr:
        raise DidNotStart(f"haproxy does not take {configuration}:\n{run.stderr}")
