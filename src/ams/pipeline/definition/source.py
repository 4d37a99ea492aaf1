"""The section `source` of a definition: what it reads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ams.core.names import is_name
from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition.fields import values_of
from ams.pipeline.definition.findings import Findings

_WHAT = ("topic", "topics", "subscription")
_NUMBERS = {"max_messages": "maxOffsetsPerTrigger", "partitions": "minPartitions"}
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
    said = findings.mapping(value, (*_WHAT, "from", *_NUMBERS, "fail_on_data_loss"))
    chosen = [name for name in _WHAT if name in said]
    if len(chosen) != 1:
        findings.add(value, f"one of {', '.join(_WHAT)} must be said, and only one")
        return Source()
    names: list[str] = []
    with findings.catch(said[chosen[0]]):
        names = _names(said[chosen[0]], findings)
    options = _options(said, findings)
    if chosen[0] != "subscription":
        return Source(topics=tuple(names), options=options)
    if len(names) > 1:
        findings.add(said["subscription"], "only one subscription can be read")
    return Source(subscription="".join(names[:1]), options=options)


def _names(value: Value, findings: Findings) -> list[str]:
    found: list[str] = []
    for each in values_of(value):
        with findings.catch(each):
            if not is_name(each.text()):
                raise bad(each.place, f"{each.text()[:64]!r} is no name: letters, digits, - and _")
            found.append(each.text())
    if not values_of(value):
        findings.add(value, "at least one name is expected here")
    return found


def _options(said: Mapping[str, Value], findings: Findings) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in (*_NUMBERS, "fail_on_data_loss", "from"):
        if name not in said:
            continue
        with findings.catch(said[name]):
            if name in _NUMBERS:
                found[_NUMBERS[name]] = str(said[name].number(1, _MOST))
            elif name == "from":
                found |= _start(said[name])
            else:
                found["failOnDataLoss"] = str(said[name].switch()).lower()
    return found


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
