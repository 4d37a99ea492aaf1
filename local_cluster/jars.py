"""Jars that Maven fetches once into the clone: Apache Kafka, and Spark's connector to it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
SECONDS = 300


class CannotFetch(Exception):
    """The jars are missing and could not be fetched; the text is Maven's error."""


@dataclass(frozen=True, slots=True)
class Jars:
    """A set of jars. Git ignores their folder, and `make clean` keeps it."""

    name: str
    pom: Path
    versions: tuple[str, ...] = ()
    """Properties of the pom, `NAME=VERSION`."""
    left_out: str = ""
    """Artifacts to leave out: the user of the jars has them."""

    @property
    def folder(self) -> Path:
        """Their folder."""
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
"""First the version of Spark; if it cannot be fetched, a mix that works with Spark 4.3."""


def kafka_jars() -> Path:
    """Return the folder of Kafka's jars; the first time they are fetched (44 MB). Raises `CannotFetch`."""
    return there(KAFKA)


def connector_jars() -> list[Path]:
    """Return the jars by which Spark reads Kafka; the first time they are fetched (11 MB). Raises `CannotFetch`."""
    kept = next((jars for jars in CONNECTORS if jars.folder.is_dir()), None)
    return sorted((kept.folder if kept else _first_there(CONNECTORS)).glob("*.jar"))


def _first_there(choice: tuple[Jars, ...]) -> Path:
    *others, last = choice
    for jars in others:
        try:
            return there(jars)
        except CannotFetch:
            continue
    return there(last)


def there(jars: Jars) -> Path:
    """Return the folder of these jars; the first time they are fetched. Raises `CannotFetch`."""
    return once(jars.folder, lambda folder: _maven(jars, folder))


def once(folder: Path, fill: Callable[[Path], None]) -> Path:
    """Return a folder, filled atomically if it is missing.

    It is filled under another name and then renamed, so concurrent calls and kills are safe.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        fill(partial)
        os.rename(partial, folder)
    except OSError:
        if not folder.is_dir():  # else a concurrent call was faster
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _maven(jars: Jars, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotFetch("Maven is missing (the Debian package maven): it fetches jars")
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
