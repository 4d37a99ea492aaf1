"""The Java that Spark runs on: whether there is one, and the archive of classes that halves how long Spark starts."""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ams.pipeline.errors import Unavailable

OLDEST = 17
INSTALL = f"Spark needs Java {OLDEST} or newer: install it (Debian: default-jre-headless), or set JAVA_HOME to it"
_VERSION = re.compile(r'version "(\d+)[^"]*"')
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def java(environment: Mapping[str, str] = os.environ) -> str:
    """Return which Java Spark will use, and its version; raise `Unavailable` for none or one that is too old."""
    home = environment.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java", path=environment.get("PATH"))
    try:
        asked = subprocess.run([program or "/no/java", "-version"], capture_output=True, text=True, check=False)  # noqa: S603  # the user's own Java
    except OSError:
        raise Unavailable(f"there is no Java{f' in {home}' if home else ''}; {INSTALL}") from None
    found = _VERSION.search(asked.stderr)
    if found is None or int(found[1]) < OLDEST:
        version = found[0].partition('"')[2].rstrip('"') if found else "of an unknown version"
        raise Unavailable(f"{program} is Java {version}; {INSTALL}")
    return f"{program}: {asked.stderr}"


def archive_options(found: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return Java's options for the archive of classes: to use it, or the first time to write it at the end.

    Java itself checks that it fits, and does without where it does not. Where Spark's settings are files in a folder,
    there is none: that folder is on the path of classes, and writing an archive would end with an error each time.
    """
    home = environment.get("SPARK_HOME")
    settings = environment.get("SPARK_CONF_DIR") or (os.path.join(home, "conf") if home else "")
    if settings and os.path.isdir(settings) and os.listdir(settings):
        return ""
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(cache) / "ams" / "spark"
    spark = importlib.util.find_spec("pyspark")  # not imported: whether there is a Java can be asked without a Spark
    archive = folder / f"{hashlib.sha256(f'{found} {spark and spark.origin}'.encode()).hexdigest()[:16]}.jsa"
    if archive.exists():
        return f"-XX:SharedArchiveFile={archive} -Xshare:auto {_QUIET}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to: Spark only starts more slowly
        return ""
    return f"-XX:ArchiveClassesAtExit={archive} {_QUIET}"
