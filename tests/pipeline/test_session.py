import os
import sys
from pathlib import Path

import pytest

from ams.pipeline.errors import MissingDependency, WrongOption
from ams.pipeline.java import archive_options, java
from ams.pipeline.session import name_python, of_cluster


def test_the_driver_is_reached_at_its_address_towards_the_master() -> None:
    assert of_cluster("spark://127.0.0.1:7077,127.0.0.9:7077") == {"spark.driver.host": "127.0.0.1"}
    assert of_cluster("k8s://https://127.0.0.1:6443") == {"spark.driver.host": "127.0.0.1"}
    assert of_cluster("yarn") == {}
    with pytest.raises(WrongOption, match=r"option master: nowhere\.invalid: "):
        of_cluster("spark://nowhere.invalid:7077")


def test_python_is_ours_here_and_the_first_on_path_on_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/chosen/python")
    name_python("spark://127.0.0.1:7077")
    assert (os.environ["PYSPARK_PYTHON"], os.environ["PATH"]) == ("/opt/chosen/python", "/usr/bin")

    monkeypatch.delenv("PYSPARK_PYTHON")
    name_python("local[2,3]")
    assert os.environ["PYSPARK_PYTHON"] == sys.executable

    monkeypatch.delenv("PYSPARK_PYTHON")
    name_python("spark://127.0.0.1:7077")
    assert os.environ["PYSPARK_PYTHON"] == "python3"
    assert os.environ["PATH"] == f"{os.path.dirname(sys.executable)}:/usr/bin"


JAVA_FOUND = '/usr/bin/java: openjdk version "17.0.15" 2025-04-15'


def fake_java(folder: Path, version: str) -> dict[str, str]:
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(folder)}


@pytest.mark.parametrize(("version", "said"), [
    ('openjdk version "11.0.2" 2019-01-15', "is Java 11.0.2; Spark needs Java 17 or newer: install it"),
    ('java version "1.8.0_292"', "is Java 1.8.0_292; Spark needs"),
    ("what?", "is Java of an unknown version; Spark needs"),
])  # fmt: skip
def test_an_old_java_is_refused(tmp_path: Path, version: str, said: str) -> None:
    with pytest.raises(MissingDependency, match=said):
        java(fake_java(tmp_path / "jdk", version))


@pytest.mark.parametrize("version", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "25" 2025-09-16'])
def test_a_java_that_is_new_enough_is_taken(tmp_path: Path, version: str) -> None:
    assert java(fake_java(tmp_path / "jdk", version)) == f"{tmp_path}/jdk/bin/java: {version}\n"


def test_no_java_is_one_clear_error(tmp_path: Path) -> None:
    for named, where in ({"JAVA_HOME": str(tmp_path)}, f" in {tmp_path}"), ({"PATH": str(tmp_path)}, ""):
        with pytest.raises(MissingDependency, match=f"there is no Java{where}; Spark needs Java 17"):
            java(named)


def test_the_archive_is_written_once_and_used_from_then_on(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    first = archive_options(JAVA_FOUND, environment)
    archive = Path(first.split()[0].removeprefix("-XX:ArchiveClassesAtExit="))
    assert archive.parent == tmp_path / "ams" / "spark"

    archive.write_bytes(b"")

    assert archive_options(JAVA_FOUND, environment).startswith(f"-XX:SharedArchiveFile={archive} -Xshare:auto")
    assert archive_options("/usr/bin/java: another", environment).startswith("-XX:ArchiveClassesAtExit=")


def test_a_cache_that_cannot_be_written_to_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert archive_options(JAVA_FOUND, {"XDG_CACHE_HOME": str(tmp_path / "file")}) == ""


@pytest.mark.parametrize("named", ["SPARK_CONF_DIR", "SPARK_HOME"])
def test_no_archive_is_asked_of_java_where_spark_has_settings_in_files(tmp_path: Path, named: str) -> None:
    folder = tmp_path / "spark" if named == "SPARK_CONF_DIR" else tmp_path / "spark" / "conf"
    folder.mkdir(parents=True)
    environment = {"XDG_CACHE_HOME": str(tmp_path), named: str(tmp_path / "spark")}
    assert archive_options(JAVA_FOUND, environment) != ""

    (folder / "spark-defaults.conf").write_text("")

    assert archive_options(JAVA_FOUND, environment) == ""
