"""What a session of a cluster is told so that driver, executors and Python find each other; without Spark."""

import os
import sys

import pytest

from ams.pipeline.errors import WrongOption
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
