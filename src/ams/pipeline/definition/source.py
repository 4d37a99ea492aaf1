"""The section `source` of a definition: what it reads."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition.fields import Findings, resource_name, values_of

_WHAT = ("topic", "topics", "subscription")
_STARTS = ("earliest", "latest")
_MOST = 10**9


@dataclass(frozen=True, slots=True)
class Source:
    """Topics, or a subscription, and the options of `format("ams")` that say how they are read."""

    topics: tuple[str, ...] = ()
    subscription: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self._told(self.options)

    @property
    def identity(self) -> str:
        """Return what decides which messages are read; how they are read may be another at each run."""
        return self._told([name for name in self.options if name.startswith("starting")])

    def _told(self, options: Iterable[str]) -> str:
        what = f"subscription {self.subscription}" if self.subscription else f"topic {', '.join(self.topics)}"
        return " ".join([what, *(f"{name}={self.options[name]}" for name in options)])


def read_source(value: Value, findings: Findings) -> Source:
    """Read the section `source`."""
    told = findings.mapping(value, (*_WHAT, *_OPTIONS))
    chosen = [name for name in _WHAT if name in told]
    if len(chosen) != 1:
        findings.add(value, f"one of {', '.join(_WHAT)} must be said, and only one")
        return Source()
    said = findings.values(told, {chosen[0]: lambda each: _names(each, findings), **_OPTIONS})
    names = said.pop(chosen[0], ())
    options = dict(sorted(option for each in said.values() for option in each.items()))
    if chosen[0] != "subscription":
        return Source(topics=names, options=options)
    if len(names) > 1:
        findings.add(told["subscription"], "only one subscription can be read")
    return Source(subscription="".join(names[:1]), options=options)


def _names(value: Value, findings: Findings) -> tuple[str, ...]:
    if not values_of(value):
        raise bad(value.place, "at least one name is expected here")
    return tuple(findings.each(values_of(value), resource_name))


def _start(value: Value) -> dict[str, str]:
    """Read where to begin: a word, or a time, UTC if it names no zone."""
    text = value.text()
    if text in _STARTS:
        return {"startingOffsets": text}
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise bad(
            value.place, f"{text[:40]!r} is neither earliest, latest nor a time such as 2024-03-05T10:00Z"
        ) from None
    return {"startingTimestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


_OPTIONS: Mapping[str, Callable[[Value], dict[str, str]]] = {
    "from": _start,
    "max_messages": lambda each: {"maxOffsetsPerTrigger": str(each.number(1, _MOST))},
    "partitions": lambda each: {"minPartitions": str(each.number(1, _MOST))},
    "fail_on_data_loss": lambda each: {"failOnDataLoss": str(each.switch()).lower()},
}
"""How messages are read, as options of `format("ams")`."""
