"""The job `federation`: from configurations and answers to deployments, and what has become of each.

A topic's order is what its deployers see, so it is the truth here too. A configuration that says the same as the one
before is that one sent again. Every other one begins a new *version*, and the answers published before the next version
are answers to it. Of each deployer the last answer counts, since the first time it was given.
"""

from typing import Annotated

import msgspec
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ams.pipeline.columns import PLACE
from ams.pipeline.jobs.base import NOT_TAKEN, UNKNOWN, Job, columns, first, unknown
from ams.pipeline.jobs.federation_messages import parse, redact_payload
from ams.pipeline.run import Run

RECORD = columns(
    ("string", "kind!"),
    ("bigint", "id!"),
    ("string", "deployment_type protocol tenant environment service_name client external_id digest state"),
    ("bigint", "status_code"),
    ("string", "deployer error"),
)

RECORDS = columns(PLACE, ("string", "registry"), RECORD)
"""A record and its message; ids are per registry, which is the topic's name up to the first underscore."""

KEY = ("project", "registry", "id")

VERSIONS = columns(
    ("string", "project registry"),
    ("bigint", "id"),
    ("int", "version"),
    ("string", "deployment_type service_name tenant protocol environment client external_id"),
    ("timestamp", "wanted_since"),
    ("string", "state"),
    ("timestamp", "state_since"),
    ("bigint", "seconds"),
    ("string", "deployer"),
    ("bigint", "status_code"),
    ("string", "error"),
)
"""A row for each version: `state` is `pending`, `deployed`, `deleted` or `error`; `seconds` is how long it took from
the configuration to that state, and null while it is pending. An answer to no configuration known is of version 0, with
the state `unknown`."""

DEPLOYMENTS = columns(VERSIONS, ("int", "deployed_version"))  # each service's last version, and last deployed one

_CONFIGURED = ("deployment_type", "service_name", "tenant", "protocol", "environment")


class FederationOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the job."""

    configurations: tuple[str, ...] = ("*_*_service_*_*",)
    """Topics the registries configure by, or patterns of them. New ones are found by themselves."""
    answers: tuple[str, ...] = ("*_deployment_results",)
    """Topics the deployers answer by, or patterns of them."""
    batch_messages: Annotated[int, msgspec.Meta(ge=1)] = 100_000
    """Messages a batch at most."""


def run(run: Run, options: FederationOptions) -> None:
    """Store records without secrets, and compute the state of each deployment."""
    table, others = run.table("records", RECORDS), run.table("not_taken", NOT_TAKEN)
    redact = F.udf(redact_payload, "binary", useArrow=False)

    def handle(messages: DataFrame) -> None:
        records, broken = run.parse(messages, parse, columns(RECORD, UNKNOWN))
        registry = F.substring_index("source.topic", "_", 1).alias("registry")
        run.append(table, records.select("source.*", registry, *RECORD.names))
        run.append(others, unknown(records))
        run.set_aside(broken.withColumn("data", redact("data")))

    def refresh() -> None:
        found = run.cached(versions(table.read()))
        run.result("versions", VERSIONS).replace(found)
        run.result("deployments", DEPLOYMENTS).replace(deployments(found))

    names = (*options.configurations, *options.answers)
    run.stream(run.topic(*names, maxOffsetsPerTrigger=str(options.batch_messages)), handle, refresh)


def versions(kept: DataFrame) -> DataFrame:
    """Return the versions in records (`RECORDS`)."""
    numbered = _number_versions(kept)
    configured = numbered.where(F.col("kind") == "configuration").groupBy(*KEY, "version")
    wanted = configured.agg(
        F.min("publish_time").alias("wanted_since"),
        *(F.max(name).alias(name) for name in (*_CONFIGURED, "client", "external_id")),
    )
    answered = _answers(numbered.where(F.col("kind") == "answer"))
    is_deletion = F.col("deployment_type") == "delete"
    state = (
        F.when(F.col("wanted_since").isNull(), "unknown")
        .when(F.col("answered").isNull(), "pending")
        .when((F.col("answered") == "deployed") & is_deletion, "deleted")
        .otherwise(F.col("answered"))
    )
    joined = wanted.join(answered, [*KEY, "version"], "full").withColumn("state", state)
    pending, taken = F.col("state") == "pending", F.unix_seconds("answered_since") - F.unix_seconds("wanted_since")
    found = {
        "version": F.col("version").cast("int"),
        "client": F.coalesce("answered_client", "client"),
        "external_id": F.coalesce("answered_external_id", "external_id"),
        "state_since": F.when(pending, F.col("wanted_since")).otherwise(F.col("answered_since")),
        "seconds": F.when(~pending, taken),
    }
    return joined.withColumns(found).select(*VERSIONS.names)


def deployments(found: DataFrame) -> DataFrame:
    """Return the state of each service, from its versions."""
    in_place = F.max(F.when(F.col("state").isin("deployed", "deleted"), F.col("version")))
    told = found.withColumn("deployed_version", in_place.over(Window.partitionBy(*KEY)))
    return first(told, KEY, F.desc("version")).select(*DEPLOYMENTS.names)


def _number_versions(kept: DataFrame) -> DataFrame:
    configures = F.col("kind") == "configuration"
    order = [F.col("publish_time"), F.when(configures, 0).otherwise(1), F.col("topic"), F.col("offset")]
    told = Window.partitionBy(*KEY).orderBy(*order)
    before = F.last("digest", ignorenulls=True).over(told.rowsBetween(Window.unboundedPreceding, -1))
    changed = configures & ~F.col("digest").eqNullSafe(before)
    return kept.withColumn("_changed", changed.cast("int")).withColumn("version", F.sum("_changed").over(told))


def _answers(numbered: DataFrame) -> DataFrame:
    """Return a row for each answered version: the worst answer of its deployers, the last of equal ones."""
    of_deployer, order = (*KEY, "version", "deployer"), ("publish_time", "topic", "offset")
    said = F.struct("state", "status_code", "error")
    before = F.lag(said).over(Window.partitionBy(*of_deployer).orderBy(*order))
    turned = numbered.withColumn("_turned", F.when(~said.eqNullSafe(before), F.col("publish_time")))
    since = F.max("_turned").over(Window.partitionBy(*of_deployer))
    last = first(turned.withColumn("answered_since", since), of_deployer, *map(F.desc, order))
    rank = F.struct(F.col("state") == "error", "answered_since", "deployer")
    names = {"client": "answered_client", "external_id": "answered_external_id", "state": "answered"}
    kept = ("state", "answered_since", "deployer", "status_code", "error", "client", "external_id")
    return last.groupBy(*KEY, "version").agg(*(F.max_by(name, rank).alias(names.get(name, name)) for name in kept))


SUMMARY = "The state of each service's deployment, from configurations and answers"
JOB = Job("federation", SUMMARY, FederationOptions, run)
