"""The catalogue as one JSON file, for programs that read no tables, and as rows for a page."""

from collections import defaultdict
from datetime import datetime
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

Offers = dict[tuple[str, str], dict[str, list[str]]]
"""Names of images and flavours by VO and topic."""


def exported(sites: DataFrame, images: DataFrame, flavours: DataFrame, now: datetime, stale_hours: float) -> bytes:
    """Return the catalogue as JSON: every site, and for each VO where it finds what, by name.

    It holds names and numbers only, so that it is small: what the tables say of an image is not repeated.
    """
    rows = [row.asDict() for row in sites.sort("site", "topic").toLocalIterator()]
    offers: Offers = defaultdict(dict)
    for kind, frame in (("images", images), ("flavours", flavours)):
        names = frame.groupBy("vo", "topic").agg(F.array_sort(F.collect_set("name")).alias("names"))
        for vo, topic, found in names.toLocalIterator():
            offers[vo, topic][kind] = list(found)
    value = {
        "generated": now,
        "stale_after_hours": stale_hours,
        "sites": rows,
        "vos": _by_vo(rows, offers),
    }
    return msgspec.json.format(msgspec.json.encode(value), indent=1)


def _by_vo(sites: list[dict[str, Any]], offers: Offers) -> dict[str, list[dict[str, Any]]]:
    of_topic = {site["topic"]: site for site in sites}
    found: dict[str, list[dict[str, Any]]] = {}
    for (vo, topic), names in sorted(offers.items()):
        site = of_topic[topic]
        place = {name: site[name] for name in ("site", "endpoint_id", "stale")}
        found.setdefault(vo, []).append({**place, "images": [], "flavours": [], **names})
    return found
