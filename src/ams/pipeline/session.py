"""Spark sessions for jobs, local or on a cluster."""

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from ams.pipeline.errors import WrongOption
from ams.pipeline.java import archive_options, java

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Tasks that list files; Spark's default of one per folder is far too many.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
    # Spark's 15 s for Python workers may be too short on a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
    # Options that hold secrets, in case a plan shows them.
    "spark.redaction.regex": "(?i)secret|password|token|credential",
}

LOOPBACK: Mapping[str, str] = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

_PATH = "/usr/local/bin:/usr/bin:/bin"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def local_session(name: str, *, cores: int = 2, memory: str = "1g", settings: Mapping[str, str] = {}) -> SparkSession:
    """Start a local Spark with `cores` parallel tasks, each tried up to three times. Raises `MissingDependency`."""
    master = settings.get("spark.master", f"local[{cores},3]")
    chosen = {**SETTINGS, **(LOOPBACK if is_local(master) else of_cluster(master)), **settings}
    chosen[_JAVA_OPTIONS] = f"{chosen.get(_JAVA_OPTIONS, '')} {archive_options(java())}".strip()
    name_python(master)
    builder = SparkSession.builder.appName(name).master(master).config("spark.driver.memory", memory)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def is_local(master: str) -> bool:
    """Return whether all tasks run on this machine."""
    return master.startswith("local")


def of_cluster(master: str) -> dict[str, str]:
    """Return the settings that let remote executors find the driver."""
    host = urlsplit(master.removeprefix("k8s://").split(",")[0]).hostname
    if not host:
        return {}
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing: finds our address towards that host
            return {"spark.driver.host": str(probe.getsockname()[0])}
    except OSError as error:
        raise WrongOption("master", f"{host}: {error.strerror}") from error


def name_python(master: str) -> None:
    """Set the Python of tasks, unless `PYSPARK_PYTHON` does.

    Spark looks up one name on the driver and the executors. So on a cluster it is `python3`, found on each machine's
    PATH; this Python comes first here.
    """
    if is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    elif "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = "python3"
        os.environ["PATH"] = f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', _PATH)}"


@contextmanager
def persist_rows(frame: DataFrame, level: StorageLevel = StorageLevel.MEMORY_AND_DISK_DESER) -> Iterator[DataFrame]:
    """Cache a frame's rows until the block ends."""
    kept = frame.persist(level)
    try:
        yield kept
    finally:
        kept.unpersist()


def make_active(spark: SparkSession) -> SparkSession:
    """Make a session the active one of the Java thread, where Spark looks up Python data sources; return it.

    PySpark may move to a new Java thread, which has no active session.
    """
    jvm: Any = spark._jvm
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
    return spark
