"""Logs and metrics of the service, configured once at the start, and the context of the current request."""

import contextlib
import io
import logging.handlers
import os
import platform
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TextIO, cast

import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import ams
from ams.core.errors import BadSettings

# Two context variables only: setting one costs 0.15 us in every publish and pull. structlog's own context costs more.
REQUEST: ContextVar[bytes] = ContextVar("request", default=b"")
"""Id of the request, as in `X-Request-Id`; empty outside requests. Threads need a copy of the context."""

SCOPE: ContextVar[MutableMapping[str, Any] | None] = ContextVar("scope", default=None)
"""ASGI scope of the request; None outside requests."""

SYSLOG = "/dev/log"
Labels = Mapping[str, str]
NO_LABELS: Labels = {}


class LogStream(io.TextIOBase):
    """Log lines to standard error, to the machine's syslog, or to both.

    A line that cannot be written is dropped: a full disk or a closed pipe must not stop the caller.
    """

    def __init__(self, facilities: str, address: str = SYSLOG) -> None:
        self._has_console, self._syslog = "console" in facilities, None
        if "syslog" in facilities:
            if not os.path.exists(address):  # the handler would retry at every line
                raise BadSettings(f"log_facilities: no syslog at {address}")
            self._syslog = logging.handlers.SysLogHandler(address, logging.handlers.SysLogHandler.LOG_DAEMON)
            self._syslog.ident = "ams: "

    def write(self, text: str, /) -> int:
        """Write a line."""
        if self._has_console:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.write(text)
        if self._syslog is not None:
            self._syslog.emit(logging.makeLogRecord({"msg": text.rstrip(), "levelname": "INFO"}))
        return len(text)

    def flush(self) -> None:
        """Flush standard error."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()

    def close(self) -> None:
        """Close the connection to syslog."""
        if self._syslog is not None:
            self._syslog.close()
        super().close()


def configure_logs(level: str, form: str, facilities: str = "console") -> None:
    """Send log lines to stderr, syslog or both; `form` is json or console. Raises `BadSettings` without a syslog."""
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer()
    if form != "json":
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
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", LogStream(facilities))),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")


def add_request(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Add the id of the current request to a log line, if any (17.4, O14)."""
    if request := REQUEST.get():
        event["request"] = request.decode("latin-1")
    return event


def describe_runtime() -> dict[str, str]:
    """Return what this program runs on: the fields of `ams.wire.service.Version` that anybody may see."""
    distribution = ""
    with contextlib.suppress(OSError):
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    return {
        "build_time": ams.__released__,
        "golang": f"Python {platform.python_version()}",
        "compiler": platform.python_implementation(),
        "os": platform.system().lower(),
        "architecture": platform.machine(),
        "distro": distribution,
    }


class Figure(NamedTuple):
    """Current values of a metric by labels; the label names never change."""

    name: str
    text: str
    values: Sequence[tuple[Labels, float]]


def figure(name: str, text: str, value: float) -> Figure:
    """Return a metric without labels."""
    return Figure(name, text, [(NO_LABELS, value)])


def background_failures(survived: Mapping[str, int]) -> Figure:
    """Return the metric of background rounds that ended with an unexpected exception and were continued."""
    text = "Rounds of background work that ended with an unexpected exception, by work."
    return Figure("ams_background_failures", text, [({"work": work}, number) for work, number in survived.items()])


class Figures(Protocol):
    """Source of metrics, read at each scrape, so that the hot path computes nothing."""

    def gauges(self) -> Iterator[Figure]:
        """Yield metrics that go up and down."""

    def counters(self) -> Iterator[Figure]:
        """Yield metrics that only grow while the service runs."""


class _Live(Collector):
    def __init__(self, source: Figures) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        yield from (_family(GaugeMetricFamily, each) for each in self._source.gauges())
        yield from (_family(CounterMetricFamily, each) for each in self._source.counters())


def _family(kind: type[GaugeMetricFamily] | type[CounterMetricFamily], figure: Figure) -> Metric:
    names = list(figure.values[0][0]) if figure.values else []
    family = kind(figure.name, figure.text, labels=names)
    for labels, value in figure.values:
        family.add_metric([labels[name] for name in names], value)
    return family


def metrics_of(source: Figures) -> CollectorRegistry:
    """Return a Prometheus registry of the metrics of the process and the source."""
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    registry.register(_Live(source))
    return registry
