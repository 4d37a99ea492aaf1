"""Sessions of Spark, on this machine or on a cluster, set up as all jobs here want them."""

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
    # Files are looked for in so many tasks; as many as there are folders is far too many.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
    # Spark gives its processes of Python 15 s to answer, which may be too short on a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
    # Options whose names say that what they hold is secret, should a plan ever show them.
    "spark.redaction.regex": "(?i)secret|password|token|credential",
}

LOOPBACK: Mapping[str, str] = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

_PATH = "/usr/local/bin:/usr/bin:/bin"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def local_session(
    name: str, *, cores: int = 2, memory: str = "1g", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in a Java of its own, `cores` tasks at a time, each tried up to three times; raises `Unavailable`."""
    said = settings or {}
    master = said.get("spark.master", f"local[{cores},3]")
    chosen = {**SETTINGS, **(LOOPBACK if is_local(master) else of_cluster(master)), **said}
    chosen[_JAVA_OPTIONS] = f"{chosen.get(_JAVA_OPTIONS, '')} {archive_options(java())}".strip()
    name_python(master)
    builder = SparkSession.builder.appName(name).master(master).config("spark.driver.memory", memory)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def is_local(master: str) -> bool:
    """Tell whether tasks run on this machine only."""
    return master.startswith("local")


def of_cluster(master: str) -> dict[str, str]:
    """Return the settings by which executors on other machines find the driver."""
    host = urlsplit(master.removeprefix("k8s://").split(",")[0]).hostname
    if not host:
        return {}
    try:
        family, _, _, _, address = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing: it tells which address of this machine is used towards that host
            return {"spark.driver.host": str(probe.getsockname()[0])}
    except OSError as error:
        raise WrongOption("master", f"{host}: {error.strerror}") from error


def name_python(master: str) -> None:
    """Say which Python tasks run, unless `PYSPARK_PYTHON` does.

    Spark has one name for it, which the driver's machine and executors look up. So on a cluster it is `python3`, each
    with a PATH of its own, on which this one comes first here.
    """
    if is_local(master):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    elif "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = "python3"
        os.environ["PATH"] = f"{os.path.dirname(sys.executable)}:{os.environ.get('PATH', _PATH)}"


@contextmanager
def persisted(frame: DataFrame, level: StorageLevel = StorageLevel.MEMORY_AND_DISK_DESER) -> Iterator[DataFrame]:
    """Keep the rows of a frame, which are gone through more than once, until the block ends."""
    kept = frame.persist(level)
    try:
        yield kept
    finally:
        kept.unpersist()


def activated(spark: SparkSession) -> SparkSession:
    """Return a session after making it the active one of Java's thread, where Spark finds data sources in Python.

    PySpark goes on in a new thread, without one, when its connection to the old was closed.
    """
    jvm: Any = spark._jvm
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
    return spark
