"""Logs and metrics of the service, configured once, at the start; and which request is being answered."""

import contextlib
import io
import logging
import logging.handlers
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TextIO, cast

import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ams.core.errors import BadSettings

# Two variables of the request at hand and no more: they are set for every publish and pull, 0.15 us each; structlog's
# own context would cost some of them ten times as much.
REQUEST: ContextVar[bytes] = ContextVar("request", default=b"")
"""The id of the request, as in its `X-Request-Id`; empty outside of requests. Threads see it when they are given it."""

SCOPE: ContextVar[MutableMapping[str, Any] | None] = ContextVar("scope", default=None)
"""All of it, as ASGI says it, for those few who want to know where it comes from; None outside of requests."""

SYSLOG = "/dev/log"
Labels = Mapping[str, str]
NO_LABELS: Labels = {}


class Stderr(io.TextIOBase):
    """Standard error, when it can be written: a log on a full disk or a closed pipe must not stop what is logged."""

    def write(self, text: str, /) -> int:
        """Write a text; drop it when it cannot be written."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, or leave it there."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


class Syslog(io.TextIOBase):
    """The machine's syslog, as another place for log lines."""

    def __init__(self, address: str = SYSLOG) -> None:
        if not os.path.exists(address):  # the handler would only try again at every line
            raise BadSettings(f"log_facilities: no syslog at {address}")
        self._handler = logging.handlers.SysLogHandler(address, logging.handlers.SysLogHandler.LOG_DAEMON)
        self._handler.ident = "ams: "

    def write(self, text: str, /) -> int:
        """Send a line; drop it when it cannot be sent."""
        self._handler.emit(logging.makeLogRecord({"msg": text.rstrip(), "levelname": "INFO"}))
        return len(text)

    def close(self) -> None:
        """Let go of the syslog."""
        self._handler.close()
        super().close()


class TeeStream(io.TextIOBase):
    """Two places for log lines."""

    def __init__(self, *places: io.TextIOBase) -> None:
        self._places = places

    def write(self, text: str, /) -> int:
        """Write to each."""
        for place in self._places:
            place.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush each."""
        for place in self._places:
            place.flush()


def configure_logs(level: str, form: str, facilities: str = "console") -> None:
    """Send log lines to stderr, syslog or both; `form` is json or console. Raises `BadSettings` without a syslog."""
    destination: io.TextIOBase = Stderr() if "console" in facilities else Syslog()
    if facilities == "console,syslog":
        destination = TeeStream(destination, Syslog())
    renderer: structlog.typing.Processor
    if form == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(colors=facilities == "console" and sys.stderr.isatty(), pad_event_to=0)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            add_request,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", destination)),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")


def add_request(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Name the request that a log line belongs to, if any (17.4, O14)."""
    if request := REQUEST.get():
        event["request"] = request.decode("latin-1")
    return event


class Figure(NamedTuple):
    """A figure as it is now: its values by labels, always of the same names."""

    name: str
    text: str
    values: Sequence[tuple[Labels, float]]


def figure(name: str, text: str, value: float) -> Figure:
    """Return a figure without labels."""
    return Figure(name, text, [(NO_LABELS, value)])


def background_failures(survived: Mapping[str, int]) -> Figure:
    """Return the figure of rounds of background work that failed by a defect; the work went on."""
    text = "Rounds of background work that ended with an unexpected exception, by work."
    return Figure("ams_background_failures", text, [({"work": work}, number) for work, number in survived.items()])


class Figures(Protocol):
    """The source of the metrics, read at each scrape, so that nothing is computed on the hot path."""

    def gauges(self) -> Iterator[Figure]:
        """Yield what goes up and down."""

    def counters(self) -> Iterator[Figure]:
        """Yield what only grows while the service runs."""


class _Live(Collector):
    def __init__(self, source: Figures) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        for each in self._source.gauges():
            yield _family(GaugeMetricFamily, each)
        for each in self._source.counters():
            yield _family(CounterMetricFamily, each)


def _family(kind: type[GaugeMetricFamily] | type[CounterMetricFamily], figure: Figure) -> Metric:
    names = list(figure.values[0][0]) if figure.values else []
    family = kind(figure.name, figure.text, labels=names)
    for labels, value in figure.values:
        family.add_metric([labels[name] for name in names], value)
    return family


def metrics_of(source: Figures) -> CollectorRegistry:
    """Return a Prometheus registry of the process's own figures and the source's."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(_Live(source))
    return registry
