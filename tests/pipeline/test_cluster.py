"""Jobs on a cluster of Spark whose executors share nothing with the driver but the disk of the run's folder."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ams.client import wire
from ams.pipeline.checkpoint import SPARK_LOG, read_standing
from cluster.environment import site_packages
from cluster.spark import SparkCluster
from tests.pipeline import where
from tests.pipeline.cluster_runs import NOTHING, SECONDS, command, environment
from tests.pipeline.garden import Garden, numbered
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

COPY = """\
source: {topic: plants, max_messages: 40}
sink: {topic: copy, data: data}
"""


def places(cluster: SparkCluster, garden: Garden) -> dict[str, str]:
    """Return where tasks have `ams` from, by the folders they run in."""
    program = [sys.executable, where.__file__, cluster.url]
    done = subprocess.run(program, env=environment(garden), cwd="/", capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    # Java may say on the same stream that it keeps no archive of classes.
    [said] = [line for line in done.stdout.splitlines() if line.startswith(b"{")]
    found: dict[str, str] = json.loads(said)
    return found


@pytest.mark.long
def test_tasks_run_in_the_environment_of_their_worker(spark_cluster: SparkCluster, garden: Garden) -> None:
    found = places(spark_cluster, garden)

    workers = [(each.folder / "work", site_packages(each.environment)) for each in spark_cluster.workers.values()]
    assert found
    for folder, place in found.items():
        assert [Path(folder).is_relative_to(work) for work, _ in workers] == [
            place == f"{own}/ams" for _, own in workers
        ]


@pytest.mark.long
def test_a_run_reads_and_publishes_and_ends_in_one_line_when_the_master_removes_it(
    spark_cluster: SparkCluster, garden: Garden, tmp_path: Path
) -> None:
    garden.topic("plants", numbered(100))
    garden.topic("copy")
    (tmp_path / "copy.yaml").write_text(COPY)
    words = command(spark_cluster, "copy.yaml", "--every", "500ms", "--work", "w")

    with subprocess.Popen(words, cwd=tmp_path, env=environment(garden), stderr=subprocess.PIPE, text=True) as run:
        wait_until(lambda: (read_standing(tmp_path / "w") or NOTHING).messages == 100, process=run)
        copied = garden.client.call(wire.read_topic(garden.name, "copy", most=1000))
        [application] = spark_cluster.applications()
        spark_cluster.remove(application.id)
        _, told = run.communicate(timeout=SECONDS)

    assert [each.payload() for each in copied] == [b"%d" % number for number in range(100)]
    assert run.returncode == 130, told + (tmp_path / "w" / SPARK_LOG).read_text()[-3000:]
    last = told.splitlines()[-1]
    assert last.startswith("ams: copy was ended by Spark's master: Master removed our application: KILLED;"), told
    assert "Traceback" not in told
    assert "\tat " not in told
