"""A new TLS connection for every call, as the official library makes, against handshakes without anything else."""

from collections.abc import Iterator
from statistics import median

from bench import handshake, preparing
from bench.callers import publish_body
from bench.connection import request
from bench.processes import Server, Service
from bench.report import Result, at_least
from bench.run import Bench


def tls(bench: Bench) -> Iterator[Result]:
    """Yield the one result."""
    with bench.data_folder() as data:
        with Service(data) as plain:
            [topic] = preparing.topics(plain, preparing.project(plain, "BENCH"), "tls", 1)
        with Service(data, "--tls-self-signed") as secure, handshake.server(data) as bare:
            yield _result(bench, secure, bare, topic)


def _result(bench: Bench, secure: Service, bare: Server, topic: str) -> Result:
    ca, seconds = secure.data / "ca.pem", bench.plan.seconds
    publish = request("POST", f"/v1/{topic}:publish", secure.token, publish_body(1, 1024, seed=0))
    pairs = bench.in_turn(
        "publish 1 over a new TLS connection each",
        lambda: handshake.calls_per_second(secure.url, ca, seconds, publish),
        lambda: handshake.calls_per_second(bare.url, ca, seconds),
    )
    return Result(
        "tls",
        {"callers": handshake.CALLERS},
        {"calls_s": median(ours for ours, _ in pairs), "handshakes_s": median(theirs for _, theirs in pairs)},
        median(ours / theirs for ours, theirs in pairs),
        "bare handshakes/s with the same certificate",
        at_least(0.9),
    )
