import io
import re

import fastavro

from demo import accounting, monitoring
from demo.stopwatch import Stopwatch


def test_a_seed_always_makes_the_same_batches_and_another_seed_others() -> None:
    assert list(accounting.batches(1, 20)) == list(accounting.batches(1, 20))
    assert list(accounting.batches(1, 20)) != list(accounting.batches(2, 20))


def test_a_batch_is_a_text_of_job_records_as_an_accounting_loader_takes_them() -> None:
    for batch in accounting.batches(1, 50):
        first, *records = re.split(r"\n(?:%%\n)?(?=Site: )", batch.data.decode().removesuffix("%%\n"))
        assert first == "APEL-individual-job-message: v0.3"
        for record in records:
            fields = dict(line.split(": ", 1) for line in record.strip().splitlines())
            assert int(fields["EndTime"]) - int(fields["StartTime"]) == int(fields["WallDuration"])
            assert int(fields["CpuDuration"]) <= int(fields["WallDuration"]) * int(fields["Processors"])


def test_no_two_jobs_and_no_two_batches_have_the_same_name() -> None:
    batches = list(accounting.batches(1, 100))
    jobs = re.findall(r"LocalJobId: (\d+)", "".join(batch.data.decode() for batch in batches))

    assert len({batch.attributes["empaid"] for batch in batches}) == 100
    assert len(set(jobs)) == len(jobs)


def test_a_seed_always_makes_the_same_results() -> None:
    assert list(monitoring.results(1, 200)) == list(monitoring.results(1, 200))


def test_a_result_can_be_read_with_the_schema_beside_the_code_and_belongs_to_its_partition() -> None:
    statuses = set()
    for result in monitoring.results(1, 3000):
        record = fastavro.schemaless_reader(io.BytesIO(result.data), monitoring.SCHEMA, None)
        assert isinstance(record, dict)
        assert result.attributes == {"partition_date": record["timestamp"][:10], "type": "metric_data"}
        statuses.add(record["status"])
    assert statuses == {"OK", "WARNING", "CRITICAL", "UNKNOWN"}


def test_percentiles_are_those_of_the_measured_calls() -> None:
    watch = Stopwatch()
    for _ in range(3):
        with watch.measure("pull"):
            pass

    assert watch.count("pull") == 3
    assert watch.count("publish") == 0
    assert 0 <= watch.percentile("pull", 50) <= watch.percentile("pull", 99) < 1
