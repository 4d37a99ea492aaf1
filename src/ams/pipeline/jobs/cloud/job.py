"""The job `cloud-info`: descriptions of clouds into a catalogue of tables and one JSON file.

The work folder keeps the latest description of each topic, and no older one: a batch replaces a topic's description
only by a newer one, so that it may come twice, and in any order.
"""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from ams.pipeline.columns import PLACE
from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.base import Job, columns, first
from ams.pipeline.jobs.cloud.parse import parse
from ams.pipeline.jobs.fields import group
from ams.pipeline.options import moment
from ams.pipeline.report.page import put
from ams.pipeline.run import Run

_TOPIC = r"^SITE_(.+)_ENDPOINT_([^_]+)$"  # the site's name, and its endpoint's id in the configuration database

CAPACITY = columns(("bigint", "cores ram_mb storage_gb"))
ENDPOINT = columns(  # an endpoint of a cloud; interfaces are such as `org.openstack.nova`
    ("string", "id url interface interface_version implementation implementation_version"),
    ("string", "authentication health serving"),
)
SHARE = columns(("string", "id vo project"), ("bigint", "max_instances instances max_cpus max_ram_mb"))
"""Quota of a VO (virtual organisation) at a site.

`project` is the site's own name or id of the place its members work in, `instances` how many there are now, running or
not; the most CPUs and memory are of one instance.
"""
# An image for instances; `marketplace` is its URL or name in the federation.
IMAGE = columns(("string", "id name version os platform marketplace"))
FLAVOUR = columns(("string", "id name"), ("bigint", "cpus ram_mb disk_gb accelerators"))
NOT_TAKEN = columns(("string", "name"), ("bigint", "times"))  # an ignored field: path or attribute, and count
_VOS = ("array<string>", "vos")

DESCRIPTION = columns(
    ("string", "shape site"),
    (CAPACITY, "capacity"),
    (ArrayType(ENDPOINT), "endpoints"),
    (ArrayType(SHARE), "shares"),
    (ArrayType(columns(IMAGE, _VOS)), "images"),
    (ArrayType(columns(FLAVOUR, _VOS)), "flavours"),
    (ArrayType(NOT_TAKEN), "not_taken"),
)
"""A message as `parse` returns it: `shape` is `glue2-ldif`, `glue21-json` or `cmdb-json`, `site` is its name for its
site; the topic has the name that counts."""
LATEST = columns(PLACE, ("string", "endpoint_id"), DESCRIPTION)
"""A description and its message. `site` and `endpoint_id` come from the topic's name if possible."""

_AT = columns(("string", "site endpoint_id topic"), ("bigint", "offset"))  # of a row, and of its message
SITES = columns(  # a row for each topic, hours to two digits; the three counts are of different ones
    _AT,
    ("timestamp", "published"),
    ("double", "silent_hours"),
    ("boolean", "stale"),
    ("string", "shape"),
    _VOS,
    ("bigint", "endpoints images flavours"),
    CAPACITY,
)
ITEMS = {
    "endpoints": columns(_AT, ENDPOINT),
    "shares": columns(_AT, SHARE),
    "images": columns(("string", "vo"), _AT, IMAGE),
    "flavours": columns(("string", "vo"), _AT, FLAVOUR),
    "not_taken": columns(_AT, NOT_TAKEN),
}


def _with_site(descriptions: DataFrame) -> DataFrame:
    site, endpoint = (F.nullif(F.regexp_extract("source.topic", _TOPIC, part), F.lit("")) for part in (1, 2))
    named = {"site": F.coalesce(site, "site", "source.topic"), "endpoint_id": endpoint}
    return descriptions.withColumns(named).select("*", "source.*").select(*LATEST.names)


def _latest(descriptions: DataFrame) -> DataFrame:
    return first(descriptions, ("project", "topic"), F.desc("publish_time"), F.desc("offset"))


def sites(descriptions: DataFrame, now: datetime, stale_hours: float) -> DataFrame:
    """Return a row for each topic, by its latest description; `stale` if that is older than so many hours at `now`."""
    seconds = F.lit(now).cast("double") - F.col("publish_time").cast("double")
    vos = F.concat("shares.vo", F.flatten("images.vos"), F.flatten("flavours.vos"))
    found = {
        "published": F.col("publish_time"),
        "silent_hours": F.round(seconds / 3600, 2),
        "stale": seconds > stale_hours * 3600,
        "vos": F.array_sort(F.array_distinct(vos)),
        **{name: F.size(F.array_distinct(f"{name}.id")).cast("long") for name in ("endpoints", "images", "flavours")},
    }
    return descriptions.withColumns(found).select("*", "capacity.*").select(*SITES.names)


def items(descriptions: DataFrame, name: str) -> DataFrame:
    """Return the table `name` of `ITEMS`; items without VOs have one row with an empty VO."""
    each = descriptions.select(*_AT.names, F.explode(name).alias("each")).select(*_AT.names, "each.*")
    if "vos" in each.columns:
        each = each.withColumn("vo", F.explode(F.when(F.size("vos") > 0, F.col("vos")).otherwise(F.array(F.lit("")))))
    return each.select(*ITEMS[name].names).distinct()


def _catalogue_json(sites: DataFrame, offered: Mapping[str, DataFrame], now: datetime, stale_hours: float) -> bytes:
    rows = {row["topic"]: row.asDict() for row in sites.sort("site", "topic").toLocalIterator()}
    offers: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(dict)
    for kind in ("images", "flavours"):
        names = offered[kind].groupBy("vo", "topic").agg(F.array_sort(F.collect_set("name")).alias("names"))
        for vo, topic, found in names.toLocalIterator():
            offers[vo, topic][kind] = list(found)
    places = {topic: {name: row[name] for name in ("site", "endpoint_id", "stale")} for topic, row in rows.items()}
    told = ((vo, {**places[topic], "images": [], "flavours": [], **of}) for (vo, topic), of in sorted(offers.items()))
    value = {"generated": now, "stale_after_hours": stale_hours, "sites": list(rows.values()), "vos": group(told)}
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


class CloudOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of the job."""

    topics: tuple[str, ...] = ("SITE_*_ENDPOINT_*",)
    """Topics or patterns of them; each topic is one site's endpoint. New ones are found by themselves."""
    stale_hours: float = 12.0
    """A site that was silent for longer is stale."""
    now: str = ""
    """The time to tell stale sites by, such as `2024-03-05T12:00:00Z`; empty is the time of the run."""
    batch_messages: Annotated[int, msgspec.Meta(ge=1)] = 500
    """Messages a batch at most; descriptions may be a megabyte each."""

    def __post_init__(self) -> None:
        if self.stale_hours <= 0:
            raise WrongOption("stale_hours", "is no number of hours above 0")
        if self.now and self.moment is None:
            raise WrongOption("now", f"{self.now!r} is no time such as 2024-03-05T12:00:00Z")

    @property
    def moment(self) -> datetime | None:
        """The time that `now` names, of UTC where it names no zone."""
        return moment(self.now) or moment(f"{self.now}Z") or moment(f"{self.now}T00:00:00Z")


def run(run: Run, options: CloudOptions) -> None:
    """Keep the latest description of each topic, and build the catalogue."""
    kept = run.result("descriptions", LATEST, ("project", "topic"))

    def handle(messages: DataFrame) -> None:
        described = run.parsed(messages, parse, DESCRIPTION)
        new = run.cached(_latest(_with_site(described)))
        before = kept.read().join(new.select("project", "topic"), ["project", "topic"], "left_semi")
        kept.replace(_latest(before.unionByName(new)))

    def refresh() -> None:
        now = options.moment or datetime.now(UTC)
        descriptions = run.cached(kept.read())
        found = sites(descriptions, now, options.stale_hours)
        offered = {name: items(descriptions, name) for name in ITEMS}
        run.result("sites", SITES).replace(found)
        for name, rows in offered.items():
            run.result(name, ITEMS[name]).replace(rows)
        catalogue = _catalogue_json(found, offered, now, options.stale_hours)
        put(run.work / "results" / "catalogue.json", catalogue.decode())

    run.stream(run.topic(*options.topics, maxOffsetsPerTrigger=str(options.batch_messages)), handle, refresh)


JOB = Job("cloud-info", "A catalogue of clouds: which VO finds which images and sizes where", CloudOptions, run)
