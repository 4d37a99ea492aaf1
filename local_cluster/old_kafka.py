"""Kafka as the reference uses it: one broker, and ZooKeeper, where the reference looks up brokers."""

from pathlib import Path

from local_cluster.jars import Jars, there
from local_cluster.kafka import QUICK_JAVA, java
from local_cluster.ports import LOOPBACK, free_port, listening
from local_cluster.processes import Process, Startable

JARS = Jars("kafka-3.9.1", Path(__file__).with_name("old_kafka.pom.xml"))
START_SECONDS = 90.0
STARTED = "started (kafka.server.KafkaServer)"
LOG4J = """\
log4j.rootLogger=INFO, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


class OldKafka(Startable):
    """ZooKeeper and a broker in `folder`. It creates topics on first use, as the reference needs.

    `more` are further properties of the broker.
    """

    def __init__(self, folder: Path, *, heap_mb: int = 256, more: dict[str, str] | None = None) -> None:
        self.folder = folder.absolute()
        self._more = more or {}
        self._zookeeper_port, self._port = free_port(), free_port()
        self._zookeeper = self._process("zookeeper", "org.apache.zookeeper.server.quorum.QuorumPeerMain", 64)
        self._broker = self._process("broker", "kafka.Kafka", heap_mb)

    @property
    def zookeeper(self) -> str:
        """Return `host:port` of ZooKeeper."""
        return f"{LOOPBACK}:{self._zookeeper_port}"

    @property
    def servers(self) -> str:
        """Return `host:port` of the broker."""
        return f"{LOOPBACK}:{self._port}"

    def start(self) -> None:
        """Start both and return when the broker serves; raises `DidNotStart` or `CannotFetch`, leaving none running."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j.properties").write_text(LOG4J)
        self._write("zookeeper", {
            "dataDir": str(self.folder / "zookeeper-data"), "clientPort": str(self._zookeeper_port),
            "clientPortAddress": LOOPBACK, "admin.enableServer": "false", "maxClientCnxns": "0",
        })  # fmt: skip
        self._write("broker", {
            "broker.id": "1", "zookeeper.connect": self.zookeeper, "log.dirs": str(self.folder / "broker-data"),
            "listeners": f"PLAINTEXT://{self.servers}", "num.partitions": "1",
            "offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1",
            "message.max.bytes": "2000000", "log.cleaner.enable": "false", "log.segment.bytes": str(64 << 20),
            "log.index.size.max.bytes": str(1 << 20), **self._more,
        })  # fmt: skip
        try:
            self._zookeeper.start()
            self._zookeeper.wait_until(lambda: listening(self._zookeeper_port), START_SECONDS)
            self._broker.start()
            self._broker.wait_said(STARTED, START_SECONDS)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill both."""
        self._broker.kill()
        self._zookeeper.kill()

    def _write(self, name: str, properties: dict[str, str]) -> None:
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        (self.folder / f"{name}.properties").write_text(text)

    def _process(self, name: str, program: str, heap_mb: int) -> Process:
        flags = [f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", QUICK_JAVA]
        logging = f"-Dlog4j.configuration=file:{self.folder}/log4j.properties"
        command = [java(), *flags, logging, "-cp", f"{there(JARS)}/*", program, f"{self.folder}/{name}.properties"]
        return Process(name, command, self.folder / f"{name}.log")
