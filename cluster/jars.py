"""Apache Kafka's jars: fetched once by Maven into the clone, complete or not at all."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

KAFKA_VERSION = "4.3.1"
ROOT = Path(__file__).parents[1]
POM = Path(__file__).parent / "pom.xml"
JARS = ROOT / ".parts" / f"kafka-{KAFKA_VERSION}"
"""Where the jars are kept; git ignores it, `make clean` leaves it."""
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
SECONDS = 300


class CannotFetch(Exception):
    """The jars are not there and could not be fetched; the text says why, in Maven's words."""


def kafka_jars() -> Path:
    """Return the folder of the jars; the first time they are fetched (44 MB). Raises `CannotFetch`."""
    if not JARS.is_dir():
        JARS.parent.mkdir(exist_ok=True)
        _fetch(JARS)
    return JARS


def _fetch(folder: Path) -> None:
    """Fetch into a folder of another name and rename it, so that two may do this at once and one may be killed."""
    partial = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        _maven(partial)
        os.rename(partial, folder)
    except OSError:
        if not folder.is_dir():  # else another was faster, and its jars are as good
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _maven(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise CannotFetch("Maven is missing (the Debian package maven): it fetches Kafka")
    where = ["-f", str(POM), f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    run = subprocess.run(
        [maven, "-q", "-B", *where, COPY], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS
    )
    if run.returncode or not list(folder.glob(f"kafka_*-{KAFKA_VERSION}.jar")):
        raise CannotFetch(f"Maven could not fetch Kafka: {(run.stdout + run.stderr).strip()[-2000:]}")
