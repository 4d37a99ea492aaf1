"""Kafka brokers on loopback: one, or three with everything kept three times, each broker its own controller (KRaft)."""

import base64
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from cluster.certificates import Authority
from cluster.jars import kafka_jars
from cluster.ports import LOOPBACK, free_port
from cluster.processes import DidNotStart, Process

START_SECONDS = 90.0
HEAP_MB = 256
STARTED = "Kafka Server started"
"""What the broker logs when it is registered, has caught up and is allowed to lead."""
CLIENTS, CONTROLLERS = "CLIENTS", "CONTROLLERS"
LARGEST_REQUEST = 17 * 2**20
"""Bytes; above the largest message batch AMS sends (16 MiB)."""

COMMON = {
    "process.roles": "broker,controller",
    "controller.listener.names": CONTROLLERS,
    "inter.broker.listener.name": CLIENTS,
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    "socket.request.max.bytes": str(2 * LARGEST_REQUEST),
    "message.max.bytes": str(LARGEST_REQUEST),
    "replica.fetch.max.bytes": str(LARGEST_REQUEST),
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # A broker that dies is noticed and its topics are led by another within 3 to 5 s; clients give up at 10.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
}

LOG4J = """\
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
"""


class Login(NamedTuple):
    """A user of SASL/SCRAM."""

    user: str
    password: str


class Security(NamedTuple):
    """TLS with SASL/SCRAM on the clients' listener, TLS with certificates both ways between controllers.

    `login` is who may come in: clients, and the brokers among themselves.
    """

    authority: Authority
    login: Login


class Brokers:
    """Brokers 1 to `count`, all in `folder`, each with its log in `broker-N.log` there.

    `properties` are added to those of every broker and win over them. Use it as a context, or `start` and `stop`.
    """

    def __init__(
        self,
        folder: Path,
        count: int = 1,
        *,
        heap_mb: int = HEAP_MB,
        security: Security | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.numbers = range(1, count + 1)
        self._jars = kafka_jars()
        self._heap_mb = heap_mb
        self._security = security
        self._more = dict(properties or {})
        self._ports = {number: (free_port(), free_port()) for number in self.numbers}
        self._processes = {number: self._process(number) for number in self.numbers}

    @property
    def servers(self) -> str:
        """Return `host:port` of every broker, separated by commas: what clients are given to start from."""
        return ",".join(f"{LOOPBACK}:{self.port(number)}" for number in self.numbers)

    def port(self, number: int) -> int:
        """Return the port on which clients reach a broker."""
        return self._ports[number][0]

    def process(self, number: int) -> Process:
        """Return a broker's process, to be killed, frozen or looked at."""
        return self._processes[number]

    def start(self) -> None:
        """Make the brokers and return when all serve; raise `DidNotStart` or `CannotFetch`, leaving none running."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j2.properties").write_text(LOG4J)
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        for number in self.numbers:
            self._format(number, cluster)
        try:
            self._start(*self.numbers)
        except BaseException:
            self.stop()
            raise

    def kill(self, number: int) -> None:
        """End a broker as a power cut would (what it gave to the operating system is kept)."""
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
        """End all brokers without ceremony: their data are scratch."""
        for process in self._processes.values():
            process.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, *numbers: int) -> None:
        for number in numbers:
            self.process(number).start()
        for number in numbers:
            self.process(number).wait_said(STARTED, START_SECONDS)

    def _process(self, number: int) -> Process:
        heap = [f"-Xms{self._heap_mb}m", f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC"]
        logging = f"-Dlog4j2.configurationFile={self.folder}/log4j2.properties"
        command = [_java(), *heap, logging, "-cp", f"{self._jars}/*", "kafka.Kafka", str(self._file(number))]
        return Process(f"broker {number}", command, self.folder / f"broker-{number}.log")

    def _file(self, number: int) -> Path:
        return self.folder / f"broker-{number}.properties"

    def _format(self, number: int, cluster: str) -> None:
        """Write a broker's properties and make its empty data folder."""
        data = self.folder / f"broker-{number}"
        shutil.rmtree(data, ignore_errors=True)
        properties = {**self._properties(number), "log.dirs": str(data), **self._more}
        file = self._file(number)
        file.touch(mode=0o600)
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        small = [_java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{self._jars}/*"]
        command = [*small, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file), *self._users()]
        run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if run.returncode:
            raise DidNotStart(f"broker {number} has no data folder:\n{run.stdout}{run.stderr}")

    def _properties(self, number: int) -> dict[str, str]:
        clients, controllers = self._ports[number]
        addresses = f"{CLIENTS}://{LOOPBACK}:{clients},{CONTROLLERS}://{LOOPBACK}:{controllers}"
        quorum = ",".join(f"{each}@{LOOPBACK}:{ports[1]}" for each, ports in self._ports.items())
        return {
            "node.id": str(number),
            "listeners": addresses,
            "advertised.listeners": addresses.split(",")[0],
            "controller.quorum.voters": quorum,
            **COMMON,
            **_copies(len(self.numbers)),
            **self._protocols(),
        }

    def _protocols(self) -> dict[str, str]:
        if self._security is None:
            return {"listener.security.protocol.map": f"{CLIENTS}:PLAINTEXT,{CONTROLLERS}:PLAINTEXT"}
        user, password = self._security.login
        store = self._security.authority.sign("kafka").both
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            "listener.security.protocol.map": f"{CLIENTS}:SASL_SSL,{CONTROLLERS}:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._security.authority.ca),
            f"listener.name.{CONTROLLERS.lower()}.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            f"listener.name.{CLIENTS.lower()}.scram-sha-512.sasl.jaas.config": (
                f'{scram} required username="{user}" password="{password}";'
            ),
        }

    def _users(self) -> list[str]:
        if self._security is None:
            return []
        user, password = self._security.login
        return ["--add-scram", f"SCRAM-SHA-512=[name={user},password={password}]"]


def _copies(brokers: int) -> dict[str, str]:
    """Return how often everything is kept: three times, two of them before an answer; once on a single broker."""
    replication, enough = (3, 2) if brokers >= 3 else (1, 1)
    return {
        "default.replication.factor": str(replication),
        "min.insync.replicas": str(enough),
        "offsets.topic.replication.factor": str(replication),
        "transaction.state.log.replication.factor": str(replication),
        "transaction.state.log.min.isr": str(enough),
        "share.coordinator.state.topic.replication.factor": str(replication),
        "share.coordinator.state.topic.min.isr": str(enough),
    }


def _java() -> str:
    java = shutil.which("java")
    if java is None:
        raise DidNotStart("Java 17 or newer is missing (the Debian package openjdk-17-jre-headless)")
    return java
