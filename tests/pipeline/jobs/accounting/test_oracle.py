"""Results over generated days, against DuckDB, which reads the very texts by itself."""

from contextlib import closing
from datetime import date
from pathlib import Path

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.accounting.job import Options, run
from bench.oracles.accounting import JOBS, RECORDS
from demo.pipeline.samples.accounting import LOST, messages
from demo.pipeline.samples.mishaps import Mishaps
from tests.pipeline.jobs.recorded import published, quarantined, recorded_run

NONE_LOST = Mishaps(late=0.3, doubled=1, broken=0.01)
DAY = date(2024, 3, 3)

JOBS_FOUND = """
    SELECT month, site, submit_host, vo, "user", vo_role, processors, levels[1].benchmark AS benchmark, jobs,
           epoch(earliest_end)::BIGINT AS first_end, epoch(latest_end)::BIGINT AS last_end, wall, cpu,
           normalised[1].wall AS by_level
    FROM job_summaries
    ORDER BY ALL
"""

MACHINES = """
    WITH every AS (
        SELECT said['SiteName'] AS site, said['VMUUID'] AS vm, said['FQAN'] AS vo, said['Status'] AS status,
               said['ImageId'] AS image, said['CpuCount']::BIGINT AS cpu_count, said['WallDuration']::BIGINT AS wall,
               said['NetworkInbound']::BIGINT AS network_in,
               if(status = 'completed', said['EndTime'], said['RecordCreateTime'])::BIGINT AS measured
        FROM records WHERE first LIKE 'APEL-cloud-message%'
    ), monthly AS (
        SELECT *, strftime(make_timestamp(measured * 1000000), '%Y-%m') AS month FROM every
        QUALIFY row_number() OVER (PARTITION BY site, vm, month ORDER BY wall DESC, measured DESC) = 1
    ), used AS (
        SELECT * REPLACE (wall - coalesce(lag(wall) OVER months, 0) AS wall,
                          network_in - coalesce(lag(network_in) OVER months, 0) AS network_in)
        FROM monthly WINDOW months AS (PARTITION BY site, vm ORDER BY month)
    )
    SELECT month, site, vo, status, image, cpu_count, count(*) AS vms, sum(wall)::BIGINT AS wall,
           sum(wall * cpu_count)::BIGINT AS cpu, sum(network_in)::BIGINT AS network_in
    FROM used GROUP BY ALL ORDER BY ALL
"""
MACHINES_FOUND = """
    SELECT month, site, vo, status, image, cpu_count, vms, wall, cpu, network_in
    FROM vm_summaries
    ORDER BY ALL
"""

SYNC = """
    SELECT site, submit_host, told, arrived, missing, surplus
    FROM sync
    WHERE missing > 0 OR surplus > 0
"""

SUMS = {
    name: f"SELECT count(*), {total} FROM {name}"
    for name, total in (
        ("job_summaries", "sum(jobs)::BIGINT, sum(wall)::BIGINT, sum(normalised[1].cpu)::BIGINT"),
        ("vm_summaries", "sum(vms)::BIGINT, sum(wall)::BIGINT, sum(network_in)::BIGINT"),
        ("storage_summaries", "sum(days)::BIGINT, sum(average_used)::BIGINT, sum(most_used)::BIGINT"),
        ("sync", "sum(told)::BIGINT, sum(arrived)::BIGINT, sum(missing)::BIGINT"),
    )
}
BY_LEVEL = ("normalised[1].cpu", "(normalised->0->>'cpu')::BIGINT")
SUMS_IN_POSTGRESQL = {name: each.replace("FROM ", "FROM accounting_").replace(*BY_LEVEL) for name, each in SUMS.items()}
"""The same of both: how many rows there are, and sums over them."""

STORAGE = "SELECT count(*), sum(days) FROM storage_summaries"


@pytest.mark.long
def test_generated_days_come_out_as_duckdb_computes_them(spark: SparkSession, database: str, tmp_path: Path) -> None:
    size = {"days": 2, "sites": 4, "jobs": 400, "machines": 30}
    texts = [each.data.decode() for each in messages(7, DAY, **size, signed=False, mishaps=NONE_LOST)]
    sent = published(messages(7, DAY, **size, encrypted=0.1, keys=str(tmp_path / "keys"), mishaps=NONE_LOST))
    keys = {name: str(tmp_path / "keys" / f"{name}.pem") for name in ("ca", "service")}
    options = Options(ca=keys["ca"], certificate=keys["service"], key=str(tmp_path / "keys" / "service.key"))

    job = recorded_run(spark, tmp_path / "work", sent)
    run(job, options)

    with duckdb.connect(config={"threads": 1}) as oracle:
        oracle.execute("SET TimeZone = 'UTC'")
        for path in (tmp_path / "work" / "results").iterdir():
            oracle.register(path.name, DeltaTable(str(path)).to_pyarrow_dataset())
        oracle.execute("CREATE TABLE texts AS SELECT unnest(?::VARCHAR[]) AS text", [texts])
        oracle.execute(RECORDS)
        for expected, found in ((JOBS, JOBS_FOUND), (MACHINES, MACHINES_FOUND)):
            rows = oracle.execute(expected).fetchall()
            assert len(rows) > 20
            assert oracle.execute(found).fetchall() == rows
        lost = oracle.execute(SYNC).fetchall()
        assert [(site, missing, surplus) for site, _, _, _, missing, surplus in lost] == [("SITE-B", 2 * LOST, 0)]
        assert oracle.execute(STORAGE).fetchall() == [(4 * 5, 4 * 5 * 2)]
        in_files = {name: oracle.execute(SUMS[name]).fetchall() for name in SUMS}
    with closing(psycopg.connect(database)) as connection:
        assert {name: connection.execute(SUMS_IN_POSTGRESQL[name]).fetchall() for name in SUMS} == in_files
    reasons = {reason for _, reason in quarantined(job)}
    assert any("WallDuration is negative" in reason for reason in reasons)
    assert any(reason.startswith(("signature: ", "envelope: ")) for reason in reasons)


@pytest.mark.long
def test_files_that_are_missing_are_told_before_anything_is_read(spark: SparkSession, tmp_path: Path) -> None:
    job = recorded_run(spark, tmp_path)

    with pytest.raises(WrongOption, match="option ca"):
        run(job, Options(ca=str(tmp_path / "none")))
    with pytest.raises(WrongOption, match="option database"):
        run(job, Options(database="postgresql://someone:secret@db.example/x"))

    assert not (tmp_path / "checkpoint").exists()
