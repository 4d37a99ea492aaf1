"""Logging in: a publish with a token of an issuer against one with a token of AMS; look-ups among many users."""

from collections.abc import Iterator
from statistics import median

import msgspec

from bench import preparing
from bench.callers import Publish
from bench.identity import LookUp, Users, by_identity, by_named_token
from bench.processes import Service, load
from bench.report import Result, at_least, at_most, progress
from bench.run import Bench, compared
from demo.issuer import ExampleIssuer

CONNECTIONS = 64
FEW, MANY = 100, 100_000
ADMINISTRATOR = "admin"
SUBJECT = "5c3f9d2e1b7a@issuer.example.org"
LOOK_UPS: tuple[tuple[str, LookUp], ...] = (("named token", by_named_token), ("identity", by_identity))


def oidc_publish(bench: Bench) -> Iterator[Result]:
    """Yield the one result: the same user publishes, logged in by one token or the other."""
    with bench.data_folder() as data, ExampleIssuer() as issuer:
        file = data.with_name("issuers.toml")
        file.write_text(f'[[issuer]]\nname = "bench"\nurl = "{issuer.url}"\naudiences = ["ams"]\n')
        with Service(data, "--issuers-file", str(file), "--issuers-allow", "127.0.0.0/8") as ams:
            preparing.binding(ams, ADMINISTRATOR, issuer.url, SUBJECT)
            [topic] = preparing.topics(ams, preparing.project(ams, "BENCH"), "publish", 1)
            yield _published(bench, ams, Publish([topic]), issuer.token(SUBJECT, lifetime=86_400))


def _published(bench: Bench, ams: Service, work: Publish, token: str) -> Result:
    job = bench.job(ams, work, CONNECTIONS)
    by_issuer = msgspec.structs.replace(job, token=token)
    pairs = bench.in_turn(
        "publish 1 with a token of an issuer, and with one of AMS", lambda: load(by_issuer), lambda: load(job)
    )
    params: dict[str, int | str] = {"messages": 1, "connections": CONNECTIONS}
    against = "requests/s with a token of AMS"
    return compared("oidc-publish", params, pairs, "own_token_requests_s", against, at_least(0.9))


def identity_users(bench: Bench) -> Iterator[Result]:
    """Yield a result for look-ups by named token, and one for those by identity."""
    with bench.data_folder() as data:
        progress(f"  make {MANY} users")
        few, many = Users(data / "few", FEW), Users(data / "many", MANY)
        for by, look_up in LOOK_UPS:
            yield _looked_up(bench, by, look_up, few, many)


def _looked_up(bench: Bench, by: str, look_up: LookUp, few: Users, many: Users) -> Result:
    seconds = bench.plan.seconds
    pairs = bench.in_turn(
        f"look-ups by {by} among few users, and among many, none of them from memory",
        lambda: few.found_per_second(look_up, seconds),
        lambda: many.found_per_second(look_up, seconds),
    )
    return Result(
        "identity-users",
        {"by": by, "users": MANY},
        {
            "look_ups_s": median(theirs for _, theirs in pairs),
            f"look_ups_s_of_{FEW}": median(ours for ours, _ in pairs),
        },
        median(ours / theirs for ours, theirs in pairs),
        f"times slower than with {FEW} users",
        at_most(1.2),
    )
