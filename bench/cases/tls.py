"""A new TLS connection for every call, as the official library makes: against bare handshakes, and behind haproxy."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import certificates, handshake, kernel, preparing
from bench.callers import publish_body
from bench.certificates import ECDSA, RSA, Files
from bench.connection import Pieces, request
from bench.handshake_costs import Ends
from bench.processes import Service
from bench.report import Result, at_least, progress
from bench.run import Bench
from cluster.haproxy import SingleHaproxy
from cluster.ports import free_port
from cluster.processes import DidNotStart

TIMES = 200
"""Handshakes in memory, and calls of a lone caller."""


def tls(bench: Bench) -> Iterator[Result]:
    """Yield calls against bare handshakes; then by key what goes into them, and what haproxy makes of them."""
    for key in (ECDSA, RSA):
        with contextlib.ExitStack() as stack:
            yield from _calls(bench, key, stack)
    yield from _handshakes(bench)


class Front(NamedTuple):
    """Where callers call, what they ask, and the processes that work for it."""

    url: str
    asked: Pieces | None
    pids: tuple[int, ...]


class Calls(NamedTuple):
    """What callers with a new connection each got, and what a call cost each process."""

    per_second: float
    processor_ms: list[float]


def _calls(bench: Bench, key: str, stack: contextlib.ExitStack) -> Iterator[Result]:
    files = certificates.make(stack.enter_context(bench.data_folder()), key)
    bare = stack.enter_context(handshake.server(files.chain.parent))
    direct = _direct(bench, stack, files)
    fronts = [direct, Front(bare.url, None, (bare.pid,)), Front(bare.url, direct.asked, (bare.pid,))]
    with contextlib.suppress(_NoHaproxy):
        fronts.append(_behind_haproxy(bench, stack, files))
    progress(f"  publish 1 over a new TLS connection each, {key}")
    turns = [[_measured(front, files.ca, bench.plan.seconds) for front in fronts] for _ in range(bench.plan.pairs)]
    ours, shaken, answered, *behind = map(list, zip(*turns, strict=True))
    params: dict[str, int | str] = {"callers": handshake.CALLERS, "key": key}
    yield Result(
        "tls",
        params,
        _figures("calls_s", ours, "service_ms")
        | _figures("handshakes_s", shaken, "handshake_ms")
        | _figures("bare_calls_s", answered, "bare_call_ms")
        | {"of_bare_calls": _ratio(ours, answered)},
        _ratio(ours, shaken),
        "bare handshakes/s with the same certificate",
        at_least(0.9) if key == ECDSA else None,
    )
    if behind:
        values = _figures("calls_s", behind[0], "service_ms", "haproxy_ms")
        values["of_handshakes"] = _ratio(behind[0], shaken)
        yield Result("tls-haproxy", params, values, _ratio(behind[0], ours), "calls/s without haproxy")
    lone = handshake.stages(direct.url, files.ca, TIMES, direct.asked or ())
    yield Result("tls-lone", {"key": key}, lone._asdict())


def _direct(bench: Bench, stack: contextlib.ExitStack, files: Files) -> Front:
    data = stack.enter_context(bench.data_folder())
    with Service(data) as plain:
        topic = _topic(plain)
    service = stack.enter_context(Service(data, "--cert", str(files.chain), "--key", str(files.key)))
    return Front(service.url, _publish(service, topic), (service.pid,))


class _NoHaproxy(Exception):
    """There is none on this machine; its part is left out."""


def _behind_haproxy(bench: Bench, stack: contextlib.ExitStack, files: Files) -> Front:
    operations = free_port()
    data = stack.enter_context(bench.data_folder())
    service = stack.enter_context(Service(data, "--ops-port", str(operations)))
    port = int(service.url.rpartition(":")[2])
    try:
        haproxy = stack.enter_context(SingleHaproxy(data.parent, port, operations, files.both()))
    except DidNotStart as missing:
        progress(f"  without haproxy: {missing}")
        raise _NoHaproxy from missing
    return Front(
        f"https://localhost:{haproxy.port}", _publish(service, _topic(service)), (service.pid, haproxy.process.pid)
    )


def _topic(service: Service) -> str:
    [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "tls", 1)
    return topic


def _publish(service: Service, topic: str) -> Pieces:
    return request("POST", f"/v1/{topic}:publish", service.token, publish_body(1, 1024, seed=0))


def _measured(front: Front, ca: Path, seconds: float) -> Calls:
    before = [kernel.processor_seconds(pid) for pid in front.pids]
    per_second = handshake.calls_per_second(front.url, ca, seconds, front.asked)
    taken = [kernel.processor_seconds(pid) - was for pid, was in zip(front.pids, before, strict=True)]
    return Calls(per_second, [1000 * each / (per_second * seconds) for each in taken])


def _figures(rate: str, calls: Sequence[Calls], *processes: str) -> dict[str, float]:
    shown = {rate: median(each.per_second for each in calls)}
    return shown | {name: median(each.processor_ms[at] for each in calls) for at, name in enumerate(processes)}


def _ratio(ours: Sequence[Calls], theirs: Sequence[Calls]) -> float:
    return median(one.per_second / other.per_second for one, other in zip(ours, theirs, strict=True))


def _handshakes(bench: Bench) -> Iterator[Result]:
    """Yield what a handshake costs in memory, by key, length of the chain, and tickets."""
    progress("  handshakes in memory")
    with bench.data_folder() as folder:
        for key, shown, tickets, resumed in (
            (ECDSA, 1, 0, False), (ECDSA, 1, 1, False), (ECDSA, 1, 2, False), (ECDSA, 1, 1, True),
            (ECDSA, 2, 0, False), (RSA, 1, 0, False), (RSA, 2, 0, False),
        ):  # fmt: skip
            ends = Ends(certificates.make(folder / f"{key}-{shown}", key, shown), tickets)
            params: dict[str, int | str] = {"key": key, "chain": shown, "tickets": tickets}
            cost = ends.cost(TIMES, resumed=resumed)
            yield Result("tls-handshake", params | ({"resumed": 1} if resumed else {}), cost._asdict())
