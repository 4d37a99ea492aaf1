"""Telling the three shapes of a description apart, and reading each.

A message is read whole or not at all: of a description that is half right, the site's older one stands.
"""

from collections.abc import Iterable, Mapping

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.cloud import cmdb, glue21, ldif
from ams.pipeline.jobs.fields import Record, in_utf8, json_value


def parse(data: bytes, attributes: Mapping[str, str]) -> Iterable[Record]:
    """Return the one description that a message holds, by `catalogue.DESCRIPTION`; what it does not say is null."""
    return [described(data)]


def described(data: bytes) -> Record:
    """Read a description; raises `Broken` for what is none, or describes nothing: it would empty the site's page."""
    found = _read(in_utf8(data))
    lists = [found[name] for name in ("endpoints", "shares", "images", "flavours")]
    if not any(lists) and not any(value is not None for value in found["capacity"].values()):
        raise Broken("it describes nothing: no endpoint, share, image or size, and no capacity")
    return found


def _read(data: bytes) -> Record:
    start = data.lstrip()[:1]
    if start not in (b"{", b"["):
        return ldif.described(data)
    value = json_value(data)
    if isinstance(value, dict) and any(name in value for name in glue21.LISTS):
        return glue21.described(value)
    if isinstance(value, list) or "images" in value:
        return cmdb.described(value)
    raise Broken("JSON that is neither GLUE 2.1 nor CMDB")
