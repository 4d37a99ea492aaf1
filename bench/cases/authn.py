"""Logins by certificate, against handshakes with a certificate and nothing else; and with many bindings against few."""

import time
from collections.abc import Iterator
from statistics import median

from bench import handshake
from bench.authn import LOGIN, CertificateService, Clients, certificate_service, look_ups_per_second
from bench.processes import Service
from bench.report import Result, at_least, at_most
from bench.run import Bench

FEW, MANY = 100, 100_000


def authn_login(bench: Bench) -> Iterator[Result]:
    """Yield the one result."""
    seconds = bench.plan.seconds
    with bench.data_folder() as data:
        clients = Clients.make(data.with_name("clients"))
        with (
            Service(data, "--tls-self-signed") as ams,
            certificate_service(data.with_name("authn"), ams, clients, FEW) as authn,
            handshake.server(data, str(clients.ca)) as bare,
        ):
            _logins(authn, clients, 0.5)
            before, ams_before, began = authn.processor_seconds(), ams.processor_seconds(), time.perf_counter()
            pairs = bench.in_turn(
                "logins by certificate",
                lambda: _logins(authn, clients, seconds),
                lambda: handshake.calls_per_second(bare.url, authn.ca, seconds, certificates=clients.files),
            )
            logins = median(ours for ours, _ in pairs)
            made = sum(ours for ours, _ in pairs) * seconds
            yield Result(
                "authn-login",
                {"callers": handshake.CALLERS},
                {
                    "logins_s": logins,
                    "handshakes_s": median(theirs for _, theirs in pairs),
                    "processor_ms": 1000 * (authn.processor_seconds() - before) / made,
                    "ams_processor_ms": 1000 * (ams.processor_seconds() - ams_before) / made,
                    "seconds": time.perf_counter() - began,
                },
                median(ours / theirs for ours, theirs in pairs),
                "bare handshakes/s with the same certificates",
                at_least(0.6),
            )


def authn_bindings(bench: Bench) -> Iterator[Result]:
    """Yield the result of logins, and that of look-ups of subjects at random."""
    seconds = bench.plan.seconds
    with bench.data_folder() as data:
        clients = Clients.make(data.with_name("clients"))
        with (
            Service(data, "--tls-self-signed") as ams,
            certificate_service(data.with_name("few"), ams, clients, FEW) as few,
            certificate_service(data.with_name("many"), ams, clients, MANY) as many,
        ):
            logins = bench.in_turn(
                "logins with few bindings, and with many",
                lambda: _logins(few, clients, seconds),
                lambda: _logins(many, clients, seconds),
            )
            yield _slower("authn-bindings", "logins_s", logins)
        look_ups = bench.in_turn(
            "look-ups among few bindings, and among many, none of them from memory",
            lambda: look_ups_per_second(few.data, FEW, seconds),
            lambda: look_ups_per_second(many.data, MANY, seconds),
        )
        yield _slower("authn-look-up", "look_ups_s", look_ups)


def _slower(case: str, what: str, pairs: list[tuple[float, float]]) -> Result:
    return Result(
        case,
        {"bindings": MANY},
        {what: median(many for _, many in pairs), f"{what}_of_{FEW}": median(few for few, _ in pairs)},
        median(few / many for few, many in pairs),
        f"with {FEW} bindings",
        at_most(1.2),
    )


def _logins(authn: CertificateService, clients: Clients, seconds: float) -> float:
    return handshake.calls_per_second(authn.url, authn.ca, seconds, LOGIN, clients.files)
