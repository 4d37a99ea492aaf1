"""The job: configurations and answers of federation registries into the state of each deployment."""

from collections.abc import Iterator
from typing import Annotated

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from ams.pipeline.columns import BROKEN
from ams.pipeline.jobs.base import Job
from ams.pipeline.jobs.federation.loop import DEPLOYMENTS, KEPT, RECORD, VERSIONS, deployments, placed, versions
from ams.pipeline.jobs.federation.parse import parse
from ams.pipeline.jobs.federation.secrets import redacted
from ams.pipeline.parsing import parsed
from ams.pipeline.running import Run


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be said to the job."""

    configurations: tuple[str, ...] = ("*_*_service_*_*",)
    """Topics the registries configure by, or patterns of them. New ones are found by themselves."""
    answers: tuple[str, ...] = ("*_deployment_results",)
    """Topics the deployers answer by, or patterns of them."""
    batch_messages: Annotated[int, msgspec.Meta(ge=1)] = 100_000
    """Messages a batch at most."""


def run(run: Run, options: Options) -> None:
    """Keep what was said, without its secrets, and tell from it where each deployment stands."""
    table = run.table("records", KEPT)

    def handle(messages: DataFrame, batch_id: int) -> None:
        with parsed(messages, parse, RECORD) as (records, broken):
            run.append(table, placed(records), batch_id)
            run.quarantine(without_secrets(broken), batch_id)

    def refresh() -> None:
        found = versions(table.read()).persist()
        run.result("versions", VERSIONS).replace(found)
        run.result("deployments", DEPLOYMENTS).replace(deployments(found))
        found.unpersist()

    names = (*options.configurations, *options.answers)
    run.stream(run.topic(*names, maxOffsetsPerTrigger=str(options.batch_messages)), handle, refresh)


def without_secrets(broken: DataFrame) -> DataFrame:
    """Return messages that were set aside with their secrets masked or cut off."""
    return broken.mapInArrow(_redact, BROKEN)


def _redact(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        place = batch.schema.get_field_index("data")
        kept = [redacted(data) for data in batch.column(place).to_pylist()]
        yield batch.set_column(place, batch.schema.field(place), pa.array(kept, batch.schema.field(place).type))


JOB = Job(
    "federation",
    "The state of each service's deployment, from configurations and answers",
    Options,
    run,
    harmless=frozenset({"batch_messages"}),
)
