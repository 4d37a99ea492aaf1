"""The job `federation`: from configurations and answers to deployments, and what has become of each.

A topic's order is what its deployers see, so it is the truth here too. A configuration that says the same as the one
before is that one sent again. Every other one begins a new *version*, and the answers published before the next version
are answers to it. Of each deployer the last answer counts, since the first time it was given.
"""

from collections.abc import Iterator
from typing import Annotated

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from ams.pipeline.columns import BROKEN, PLACE
from ams.pipeline.jobs.base import Job
from ams.pipeline.jobs.federation.parse import parse, redacted
from ams.pipeline.parsing import parsed
from ams.pipeline.running import Run


def _texts(names: str) -> list[StructField]:
    return [StructField(name, StringType()) for name in names.split()]


RECORD = StructType(
    [
        StructField("kind", StringType(), nullable=False),
        StructField("id", LongType(), nullable=False),
        *_texts("deployment_type protocol tenant environment service_name client external_id digest state"),
        StructField("status_code", LongType()),
        *_texts("deployer error"),
    ]
)
"""What one message says, a configuration or an answer; `parse` makes these."""

KEPT = StructType([*PLACE.fields, StructField("registry", StringType()), *RECORD.fields])
"""A record and where it stands; ids are those of a registry, named by its topics up to the first underscore."""

KEY = ("project", "registry", "id")

VERSIONS = StructType(
    [
        *_texts("project registry"),
        StructField("id", LongType()),
        StructField("version", IntegerType()),
        *_texts("deployment_type service_name tenant protocol environment client external_id"),
        StructField("wanted_since", TimestampType()),
        *_texts("state"),
        StructField("state_since", TimestampType()),
        StructField("seconds", LongType()),
        *_texts("deployer"),
        StructField("status_code", LongType()),
        *_texts("error"),
    ]
)
"""A row for each version: `state` is `pending`, `deployed`, `deleted` or `error`; `seconds` is how long it took from
the configuration to that state, and null while it is pending. An answer to no configuration known is of version 0, with
the state `unknown`."""

DEPLOYMENTS = StructType([*VERSIONS.fields, StructField("deployed_version", IntegerType())])
"""The last version of each service, and the last one that was put in place."""

_CONFIGURED = ("deployment_type", "service_name", "tenant", "protocol", "environment")


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

    def redact(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            kept = [redacted(data) for data in batch.column("data").to_pylist()]
            columns = {name: batch.column(name) for name in batch.schema.names}
            yield pa.RecordBatch.from_pydict({**columns, "data": pa.array(kept, pa.binary())})

    return broken.mapInArrow(redact, BROKEN)


def placed(records: DataFrame) -> DataFrame:
    """Return records (`RECORD` and `source`) with their place and registry."""
    return records.select(
        *(F.col(f"source.{name}").alias(name) for name in PLACE.names),
        F.substring_index("source.topic", "_", 1).alias("registry"),
        *RECORD.names,
    )


def versions(kept: DataFrame) -> DataFrame:
    """Return the versions that records (`KEPT`) tell of."""
    numbered = _numbered(kept)
    configured = _configurations(numbered.where(F.col("kind") == "configuration"))
    answered = _answers(numbered.where(F.col("kind") == "answer"))
    joined = configured.join(answered, [*KEY, "version"], "full")
    state = _state()
    since = F.when(state == "pending", F.col("wanted_since")).otherwise(F.col("answered_since"))
    taken = F.when(state != "pending", F.unix_seconds("answered_since") - F.unix_seconds("wanted_since"))
    return joined.select(
        *KEY,
        F.col("version").cast("int").alias("version"),
        *_CONFIGURED,
        F.coalesce("answered_client", "client").alias("client"),
        F.coalesce("answered_external_id", "external_id").alias("external_id"),
        "wanted_since",
        state.alias("state"),
        since.alias("state_since"),
        taken.alias("seconds"),
        "deployer",
        "status_code",
        "error",
    ).select(*VERSIONS.names)


def deployments(found: DataFrame) -> DataFrame:
    """Return where each service stands, from its versions."""
    of_service = Window.partitionBy(*KEY)
    in_place = F.when(F.col("state").isin("deployed", "deleted"), F.col("version"))
    last = found.withColumns(
        {"deployed_version": F.max(in_place).over(of_service), "_last": F.max("version").over(of_service)}
    )
    return last.where(F.col("version") == F.col("_last")).select(*DEPLOYMENTS.names)


def _numbered(kept: DataFrame) -> DataFrame:
    """Give each record the number of the version it belongs to."""
    configures = F.col("kind") == "configuration"
    order = [F.col("publish_time"), F.when(configures, 0).otherwise(1), F.col("topic"), F.col("offset")]
    told = Window.partitionBy(*KEY).orderBy(*order)
    before = told.rowsBetween(Window.unboundedPreceding, -1)
    so_far = told.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    changed = configures & ~F.col("digest").eqNullSafe(F.last("digest", ignorenulls=True).over(before))
    flagged = kept.withColumn("_changed", changed.cast("int"))
    return flagged.withColumn("version", F.sum("_changed").over(so_far))


def _configurations(numbered: DataFrame) -> DataFrame:
    """Return a row for each version: what it wants, and since when."""
    return numbered.groupBy(*KEY, "version").agg(
        F.min("publish_time").alias("wanted_since"),
        *(F.max(name).alias(name) for name in (*_CONFIGURED, "client", "external_id")),
    )


def _answers(numbered: DataFrame) -> DataFrame:
    """Return a row for each version that was answered: of several deployers the worst, of equal ones the last."""
    of_deployer = Window.partitionBy(*KEY, "version", "deployer")
    in_order = of_deployer.orderBy("publish_time", "topic", "offset")
    said = F.struct("state", "status_code", "error")
    turned = numbered.withColumn("_turned", ~said.eqNullSafe(F.lag(said).over(in_order)))
    since = F.max(F.when(F.col("_turned"), F.col("publish_time"))).over(of_deployer)
    latest = F.row_number().over(of_deployer.orderBy(F.desc("publish_time"), F.desc("topic"), F.desc("offset")))
    last = turned.withColumns({"answered_since": since, "_rank": latest}).where(F.col("_rank") == 1)
    rank = F.struct(F.col("state") == "error", "answered_since", "deployer")
    names = {"client": "answered_client", "external_id": "answered_external_id", "state": "answered"}
    kept = ("state", "answered_since", "deployer", "status_code", "error", "client", "external_id")
    return last.groupBy(*KEY, "version").agg(*(F.max_by(name, rank).alias(names.get(name, name)) for name in kept))


def _state() -> Column:
    """Return what has become of a version, by the answer that counts."""
    deletes = F.col("deployment_type") == "delete"
    return (
        F.when(F.col("wanted_since").isNull(), "unknown")
        .when(F.col("answered").isNull(), "pending")
        .when((F.col("answered") == "deployed") & deletes, "deleted")
        .otherwise(F.col("answered"))
    )


JOB = Job(
    "federation",
    "The state of each service's deployment, from configurations and answers",
    Options,
    run,
    harmless=frozenset({"batch_messages"}),
)
