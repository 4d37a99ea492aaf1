from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ams.pipeline.tables.files import Files, LocalFiles, Storage, files_of, folders_at


@pytest.fixture(params=["local", "hadoop"])
def files(request: pytest.FixtureRequest) -> Storage:
    return LocalFiles() if request.param == "local" else Files(request.getfixturevalue("spark"))


def test_files_keep_their_promise(files: Storage, tmp_path: Path) -> None:
    root = str(tmp_path)
    assert (files.names(f"{root}/none"), files.exists(f"{root}/none")) == ([], False)

    files.write(f"{root}/a/b/one", b"first")
    files.write(f"{root}/a/b/two", b"second")
    with pytest.raises(FileExistsError):
        files.write(f"{root}/a/b/one", b"other")
    assert (files.names(f"{root}/a/b"), files.read(f"{root}/a/b/one")) == (["one", "two"], b"first")
    assert (files.size(f"{root}/a/b/two"), files.tail(f"{root}/a/b/two", 3)) == (6, b"ond")
    assert files.tail(f"{root}/a/b/two", 99) == b"second"

    files.replace(f"{root}/a/b/one", f"{root}/a/b/two")
    files.sync(root)
    files.move(f"{root}/a", f"{root}/c/d")
    assert (files.read(f"{root}/c/d/b/two"), files.exists(f"{root}/a")) == (b"first", False)
    with pytest.raises((OSError, Py4JJavaError)):
        files.move(f"{root}/c/d/b", f"{root}/c/d")

    files.delete(f"{root}/c")
    files.delete(f"{root}/c")
    assert files.names(root) == []


def test_partitions_are_found_at_their_depth(tmp_path: Path) -> None:
    for path in ("day=1/site=a", "day=1/site=b", "day=2/site=a", "_work/day=3/site=c", "day=2/other"):
        (tmp_path / path).mkdir(parents=True)

    assert folders_at(LocalFiles(), str(tmp_path), 2) == ["day=1/site=a", "day=1/site=b", "day=2/site=a"]
    assert folders_at(LocalFiles(), str(tmp_path), 0) == ["."]


def test_the_file_system_is_that_of_the_path(spark: SparkSession, tmp_path: Path) -> None:
    assert isinstance(files_of(spark, str(tmp_path)), LocalFiles)
    assert isinstance(files_of(spark, f"file:{tmp_path}"), LocalFiles)
