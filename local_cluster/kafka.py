"""Kafka brokers on loopback: one, or three with three replicas. Each broker is its own controller (KRaft)."""

import base64
import itertools
import shutil
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from local_cluster.jars import kafka_jars
from local_cluster.kafka_properties import Login, Ports, Security, properties
from local_cluster.link import Link
from local_cluster.ports import LOOPBACK, free_port
from local_cluster.processes import DidNotStart, Process, Startable

START_SECONDS = 90.0
HEAP_MB = 256
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
"""Java options with little compilation, for programs that run for seconds."""
STARTED = "Kafka Server started"
"""Line of the broker's log when it is registered, has caught up and may lead."""
__all__ = ["Brokers", "Login", "Security"]

LOG4J = """\
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
"""


class Brokers(Startable):
    """Brokers 1 to `count`, all in `folder`, each with its log in `broker-N.log` there.

    `ways` are names of further ways to the brokers, all through links that can be cut: the way of one node, say.
    `quick` brokers start sooner and cost less, but stay slower: not for measuring.
    `more` are properties added to those of every broker, and win over them. Use it as a context, or `start` and `stop`.
    """

    def __init__(
        self,
        folder: Path,
        count: int = 1,
        *,
        heap_mb: int = HEAP_MB,
        quick: bool = False,
        ways: Sequence[str] = (),
        security: Security | None = None,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.numbers = range(1, count + 1)
        self._jars = kafka_jars()
        self._flags = [f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", *([QUICK_JAVA] if quick else [])]
        self.security = security
        self._more = dict(more or {})
        self._ports = {number: _ports(ways) for number in self.numbers}
        self._links = {way: [Link(*ports.ways[way]) for ports in self._ports.values()] for way in ways}
        self._processes = {number: self._process(number) for number in self.numbers}

    @property
    def servers(self) -> str:
        """Return `host:port` of every broker, separated by commas, as bootstrap servers."""
        return ",".join(f"{LOOPBACK}:{self.port(number)}" for number in self.numbers)

    def port(self, number: int) -> int:
        """Return the port on which clients reach a broker."""
        return self._ports[number].clients

    def servers_by(self, way: str) -> str:
        """Return `servers` for a client that uses this way."""
        return ",".join(f"{LOOPBACK}:{link.port}" for link in self._links[way])

    def links(self, way: str) -> Sequence[Link]:
        """Return the links of a way: to broker 1, to broker 2, and so on."""
        return self._links[way]

    def process(self, number: int) -> Process:
        """Return a broker's process."""
        return self._processes[number]

    def start(self) -> None:
        """Make the brokers and return when all serve; raise `DidNotStart` or `CannotFetch`, leaving none running."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j2.properties").write_text(LOG4J)
        # Begins with "A": the formatter takes a leading dash for a flag.
        cluster = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        for number in self.numbers:
            self._format(number, cluster)
        try:
            for link in self._all_links():
                link.start()
            self._start(*self.numbers)
        except BaseException:
            self.stop()
            raise

    def kill(self, number: int) -> None:
        """Kill a broker; data that it gave to the operating system stay."""
        self.process(number).kill()

    def freeze(self, number: int) -> None:
        """Stop a broker without ending it."""
        self.process(number).freeze()

    def thaw(self, number: int) -> None:
        """Let a frozen broker go on."""
        self.process(number).thaw()

    def restart(self, *numbers: int) -> None:
        """Start brokers that were killed, all at once, and return when they serve."""
        self._start(*numbers)

    def stop(self) -> None:
        """Kill all brokers: their data are temporary."""
        for process in self._processes.values():
            process.kill()
        for link in self._all_links():
            link.stop()

    def _all_links(self) -> Iterator[Link]:
        return itertools.chain.from_iterable(self._links.values())

    def _start(self, *numbers: int) -> None:
        for number in numbers:
            self.process(number).start()
        for number in numbers:
            self.process(number).wait_said(STARTED, START_SECONDS)

    def _process(self, number: int) -> Process:
        logging = f"-Dlog4j2.configurationFile={self.folder}/log4j2.properties"
        command = [java(), *self._flags, logging, "-cp", f"{self._jars}/*", "kafka.Kafka", str(self._file(number))]
        return Process(f"broker {number}", command, self.folder / f"broker-{number}.log")

    def _file(self, number: int) -> Path:
        return self.folder / f"broker-{number}.properties"

    def _format(self, number: int, cluster: str) -> None:
        """Write a broker's properties and make its empty data folder."""
        data = self.folder / f"broker-{number}"
        shutil.rmtree(data, ignore_errors=True)
        chosen = {**properties(number, self._ports, self.security), "log.dirs": str(data), **self._more}
        file = self._file(number)
        file.touch(mode=0o600)
        file.write_text("".join(f"{key}={value}\n" for key, value in chosen.items()))
        small = [java(), "-Xmx128m", "-XX:+UseSerialGC", QUICK_JAVA, "-cp", f"{self._jars}/*"]
        command = [
            *small,
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster}",
            "-c",
            str(file),
            *self._users(),
        ]
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if run.returncode:
            raise DidNotStart(f"broker {number} has no data folder:\n{run.stdout}{run.stderr}")

    def _users(self) -> list[str]:
        if self.security is None:
            return []
        user, password = self.security.login
        return ["--add-scram", f"SCRAM-SHA-512=[name={user},password={password}]"]


def _ports(ways: Sequence[str]) -> Ports:
    return Ports(free_port(), free_port(), {way: (free_port(), free_port()) for way in ways})


def java() -> str:
    """Return the path of Java. Raises `DidNotStart` if there is none."""
    found = shutil.which("java")
    if found is None:
        raise DidNotStart("Java 17 or newer is missing (the Debian package default-jre-headless)")
    return found
