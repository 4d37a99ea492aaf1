"""From descriptions to a catalogue: the latest of each topic, and what follows from all of these."""

from datetime import datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ams.pipeline.columns import PLACE

_TOPIC = r"^SITE_(.+)_ENDPOINT_([^_]+)$"
"""Topics of sites: the site's name, and the id of its endpoint in the configuration database."""


def _struct(texts: str, numbers: str = "", *more: StructField) -> StructType:
    """Return a struct with columns of text, columns of whole numbers, and some others."""
    return StructType(
        [
            *(StructField(name, StringType()) for name in texts.split()),
            *(StructField(name, LongType()) for name in numbers.split()),
            *more,
        ]
    )


_VOS = StructField("vos", ArrayType(StringType()))
ENDPOINT = _struct(
    "id url interface interface_version implementation implementation_version authentication health serving"
)
SHARE = _struct("id vo project", "max_instances instances max_cpus max_ram_mb")
IMAGE = _struct("id name version os platform marketplace")
FLAVOUR = _struct("id name", "cpus ram_mb disk_gb accelerators")
CAPACITY = _struct("", "cores ram_mb storage_gb")

DESCRIPTION = StructType(
    [
        StructField("shape", StringType()),
        StructField("site", StringType()),
        StructField("capacity", CAPACITY),
        StructField("endpoints", ArrayType(ENDPOINT)),
        StructField("shares", ArrayType(SHARE)),
        StructField("images", ArrayType(StructType([*IMAGE.fields, _VOS]))),
        StructField("flavours", ArrayType(StructType([*FLAVOUR.fields, _VOS]))),
    ]
)
"""What one message says; `parse` makes these."""

LATEST = StructType([*PLACE.fields, StructField("endpoint_id", StringType()), *DESCRIPTION.fields])
"""A description and where it stands. `site` and `endpoint_id` are those of the topic's name, where it has them."""

_AT = _struct("site endpoint_id topic")
SITES = StructType(
    [
        *_AT.fields,
        StructField("published", TimestampType()),
        StructField("silent_hours", DoubleType()),
        StructField("stale", BooleanType()),
        StructField("shape", StringType()),
        _VOS,
        *_struct("", "endpoints images flavours").fields,
        *CAPACITY.fields,
    ]
)
"""A row for each topic, hours to two digits. The three counts are of different ones."""
SITE_ENDPOINTS = StructType([*_AT.fields, *ENDPOINT.fields])
SITE_SHARES = StructType([*_AT.fields, *SHARE.fields])
VO_IMAGES = StructType([StructField("vo", StringType()), *_AT.fields, *IMAGE.fields])
VO_FLAVOURS = StructType([StructField("vo", StringType()), *_AT.fields, *FLAVOUR.fields])
"""A row for each VO that may use it; of what is not said to be of a VO one row, with an empty one."""


def placed(descriptions: DataFrame) -> DataFrame:
    """Return descriptions (`DESCRIPTION` and `source`) with their place."""
    topic = F.col("source.topic")
    named = F.nullif(F.regexp_extract(topic, _TOPIC, 1), F.lit(""))
    return descriptions.select(
        *(F.col(f"source.{name}").alias(name) for name in PLACE.names),
        F.nullif(F.regexp_extract(topic, _TOPIC, 2), F.lit("")).alias("endpoint_id"),
        "shape",
        F.coalesce(named, "site", topic).alias("site"),
        *DESCRIPTION.names[2:],
    ).select(*LATEST.names)


def latest(descriptions: DataFrame) -> DataFrame:
    """Keep of each topic the description published last, whichever comes first here."""
    newest = Window.partitionBy("project", "topic").orderBy(F.desc("publish_time"), F.desc("offset"))
    ranked = descriptions.withColumn("_rank", F.row_number().over(newest))
    return ranked.where(F.col("_rank") == 1).select(*LATEST.names)


def sites(descriptions: DataFrame, now: datetime, stale_hours: float) -> DataFrame:
    """Return a row for each topic, by its latest description; `stale` if that is older than so many hours at `now`."""
    seconds = F.lit(now).cast("double") - F.col("publish_time").cast("double")
    return descriptions.select(
        "site",
        "endpoint_id",
        "topic",
        F.col("publish_time").alias("published"),
        F.round(seconds / 3600, 2).alias("silent_hours"),
        (seconds > stale_hours * 3600).alias("stale"),
        "shape",
        _vos().alias("vos"),
        *(_different(name).alias(name) for name in ("endpoints", "images", "flavours")),
        *(F.col(f"capacity.{name}").alias(name) for name in CAPACITY.names),
    ).select(*SITES.names)


def _different(name: str) -> Column:
    """Count the different items of a list."""
    return F.size(F.array_distinct(F.col(f"{name}.id"))).cast("long")


def _vos() -> Column:
    """Return all VOs that a description names."""
    named = F.concat(F.col("shares.vo"), F.flatten(F.col("images.vos")), F.flatten(F.col("flavours.vos")))
    return F.array_sort(F.array_distinct(named))


def site_endpoints(descriptions: DataFrame) -> DataFrame:
    """Return a row for each endpoint of each topic."""
    each = descriptions.select(*_AT.names, F.explode("endpoints").alias("each"))
    return each.select(*_AT.names, "each.*").select(*SITE_ENDPOINTS.names).distinct()


def site_shares(descriptions: DataFrame) -> DataFrame:
    """Return a row for each share of a VO at each topic."""
    each = descriptions.select(*_AT.names, F.explode("shares").alias("each"))
    return each.select(*_AT.names, "each.*").select(*SITE_SHARES.names).distinct()


def vo_images(descriptions: DataFrame) -> DataFrame:
    """Return which VO may start which images where."""
    return _by_vo(descriptions, "images", VO_IMAGES)


def vo_flavours(descriptions: DataFrame) -> DataFrame:
    """Return which VO may have which sizes of instances where."""
    return _by_vo(descriptions, "flavours", VO_FLAVOURS)


def _by_vo(descriptions: DataFrame, name: str, schema: StructType) -> DataFrame:
    each = descriptions.select(*_AT.names, F.explode(name).alias("each"))
    vos = F.when(F.size("each.vos") > 0, F.col("each.vos")).otherwise(F.array(F.lit("")))
    return each.select(*_AT.names, "each.*", F.explode(vos).alias("vo")).select(*schema.names).distinct()
