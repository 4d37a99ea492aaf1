"""Jars fetched once by Maven into the clone, complete or not at all: Apache Kafka, and Spark's connector to it."""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
SECONDS = 300


class CannotFetch(Exception):
    """The jars are not there and could not be fetched; the text says why, in Maven's words."""


@dataclass(frozen=True, slots=True)
class Jars:
    """A set of jars; git ignores the folder they are kept in, `make clean` leaves it."""

    name: str
    pom: Path
    versions: tuple[str, ...] = ()
    """Properties of the pom, `NAME=VERSION`."""
    left_out: str = ""
    """Artifacts that are there already where the jars are used."""

    @property
    def folder(self) -> Path:
        """Where they are kept."""
        return ROOT / ".parts" / self.name


KAFKA = Jars("kafka-4.3.1", HERE / "pom.xml")
_OF_SPARK = (
    "scala-library,slf4j-api,hadoop-client-api,hadoop-client-runtime,jsr305,lz4-java,snappy-java,"
    "scala-parallel-collections_2.13,spark-tags_2.13"
)
CONNECTORS = tuple(
    Jars(f"spark-kafka-{connector}", HERE / "spark.pom.xml", (f"connector={connector}", f"tokens={tokens}"), _OF_SPARK)
    for connector, tokens in (("4.3.0", "4.3.0"), ("4.2.0", "4.0.0"))
)
"""First what matches Spark; where that is not to be had, a mix that Spark 4.3 was seen to work with."""


def kafka_jars() -> Path:
    """Return the folder of Kafka's jars; the first time they are fetched (44 MB). Raises `CannotFetch`."""
    return _there(KAFKA)


def connector_jars() -> list[Path]:
    """Return the jars by which Spark reads Kafka; the first time they are fetched (11 MB). Raises `CannotFetch`."""
    kept = next((jars for jars in CONNECTORS if jars.folder.is_dir()), None)
    return sorted((kept.folder if kept else _first_there(CONNECTORS)).glob("*.jar"))


def _first_there(choice: tuple[Jars, ...]) -> Path:
    *others, last = choice
    for jars in others:
        try:
            return _there(jars)
        except CannotFetch:
            continue
    return _there(last)


def _there(jars: Jars) -> Path:
    if not jars.folder.is_dir():
        jars.folder.parent.mkdir(exist_ok=True)
        _fetch(jars)
    return jars.folder


def _fetch(jars: Jars) -> None:
    """Fetch into a folder of another name and rename it, so that two may do this at once and one may be killed."""
    partial = Path(tempfile.mkdtemp(prefix=f"{jars.name}.", dir=jars.folder.parent))
    try:
        _maven(jars, partial)
        os.rename(partial, jars.folder)
    except OSError:
        if not jars.folder.is_dir():  # else another was faster, and its jars are as good
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _maven(jars: Jars, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotFetch("Maven is missing (the Debian package maven): it fetches Kafka")
    where = ["-f", str(jars.pom), f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    which = [f"-D{each}" for each in jars.versions] + [f"-DexcludeArtifactIds={jars.left_out}"]
    run = subprocess.run(
        [maven, "-q", "-B", *where, *which, COPY],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    if run.returncode or not list(folder.glob("*.jar")):
        raise CannotFetch(f"Maven could not fetch {jars.name}: {(run.stdout + run.stderr).strip()[-2000:]}")
