"""A new TLS connection for every call, as the official library makes them, against bare handshakes."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import handshake, preparing
from bench.callers import publish_body
from bench.connection import Pieces, request
from bench.processes import Server, Service
from bench.report import Result, at_least
from bench.run import Bench
from cluster.certificates import Authority


class Calls(NamedTuple):
    """One measurement: calls a second, and the server's processor time for each."""

    per_second: float
    processor_ms: float


def tls(bench: Bench) -> Iterator[Result]:
    """Yield the result; the server's key is an ECDSA key."""
    with bench.data_folder() as folder, bench.data_folder() as data:
        authority = Authority(folder)
        files = authority.sign("localhost")
        with Service(data) as plain:
            [topic] = preparing.topics(plain, preparing.project(plain, "BENCH"), "tls", 1)
        flags = ("--cert", str(files.certificate), "--key", str(files.key))
        with handshake.server(files) as bare, Service(data, *flags) as service:
            publish = request("POST", f"/v1/{topic}:publish", service.token, publish_body(1, 1024, seed=0))
            pairs = bench.in_turn(
                "publish 1 over a new TLS connection each",
                lambda: _measured(service, authority.ca, bench.plan.seconds, publish),
                lambda: _measured(bare, authority.ca, bench.plan.seconds),
            )
    yield Result(
        "tls",
        {"callers": handshake.CALLERS},
        {
            "calls_s": median(ours.per_second for ours, _ in pairs),
            "service_ms": median(ours.processor_ms for ours, _ in pairs),
            "handshakes_s": median(theirs.per_second for _, theirs in pairs),
            "handshake_ms": median(theirs.processor_ms for _, theirs in pairs),
        },
        median(ours.per_second / theirs.per_second for ours, theirs in pairs),
        "bare handshakes/s with the same certificate",
        at_least(0.9),
    )


def _measured(server: Server, ca: Path, seconds: float, asked: Pieces | None = None) -> Calls:
    before = server.processor_seconds()
    per_second = handshake.calls_per_second(server.url, ca, seconds, asked)
    return Calls(per_second, 1000 * (server.processor_seconds() - before) / (per_second * seconds))
