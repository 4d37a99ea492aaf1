"""Java for Spark: finds it, and uses a class archive (CDS) that halves Spark's start."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ams.pipeline.errors import MissingDependency

MIN_JAVA = 17  # version
INSTALL = f"Spark needs Java {MIN_JAVA} or newer: install it (Debian: default-jre-headless), or set JAVA_HOME to it"
_VERSION = re.compile(r'version "(\d+)[^"]*"')
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def java(environment: Mapping[str, str] = os.environ) -> str:
    """Return the Java that Spark will use, with its version. Raises `MissingDependency` if absent or too old."""
    home = environment.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java", path=environment.get("PATH"))
    try:
        asked = subprocess.run([program or "/no/java", "-version"], capture_output=True, text=True, check=False)  # noqa: S603  # the user's own Java
    except OSError:
        raise MissingDependency(f"there is no Java{f' in {home}' if home else ''}; {INSTALL}") from None
    found = _VERSION.search(asked.stderr)
    if found is None or int(found[1]) < MIN_JAVA:
        version = found[0].partition('"')[2].rstrip('"') if found else "of an unknown version"
        raise MissingDependency(f"{program} is Java {version}; {INSTALL}")
    return f"{program}: {asked.stderr}"


def archive_options(found: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return Java's options to use the class archive, or to write it at the end of the first run.

    Java checks that the archive fits, and works without it otherwise. There is none if Spark's settings are files in a
    folder: that folder is on the class path, and writing an archive would fail each time.
    """
    home = environment.get("SPARK_HOME")
    settings = environment.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else "")
    if settings and os.path.isdir(settings) and os.listdir(settings):
        return ""
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(cache) / "ams" / "spark"
    spark = importlib.util.find_spec("pyspark")  # not imported: Java can be checked without Spark
    archive = folder / f"{hashlib.sha256(f'{found} {spark and spark.origin}'.encode()).hexdigest()[:16]}.jsa"
    if archive.exists():
        return f"-XX:SharedArchiveFile={archive} -Xshare:auto {_QUIET}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # home not writable: Spark only starts more slowly
        return ""
    return f"-XX:ArchiveClassesAtExit={archive} {_QUIET}"
