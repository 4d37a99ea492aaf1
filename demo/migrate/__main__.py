"""The demo of a move: the order of its steps."""

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from ams.http.tls import self_signed
from demo import pushing, service
from demo.migrate import site
from demo.migrate.books import PUBLISH, Balance, answers, balance, differences
from demo.migrate.day import FULL, SMALL, Day, made_up
from demo.migrate.operator import CommandFailed, Operator
from demo.migrate.sides import CannotBuild, NewSide, OldSide, program, write_documents, write_messages
from demo.service import PROGRAM_PATH, python
from demo.workers import GaveUp, Worker, stop, write_secret
from local_cluster.haproxy import MovingHaproxy
from local_cluster.jars import CannotFetch
from local_cluster.processes import DidNotStart, Process

MOST_TOLD = 10
PATIENCE = 30.0  # seconds for the last pushes to come

HEADER = site.Who("receiver", "header").token
HASH = site.Who("receiver", "hash").token


class Counting(pushing.Receiver):
    def __init__(self, ca: str, chain: str, key: str) -> None:
        super().__init__(ca, chain, key)
        self.times: Counter[str] = Counter()
        self.verification_hash = HASH

    @property
    def pushed(self) -> site.Pushed:
        return site.Pushed(self.url, HASH, HEADER)

    def note(self, body: bytes) -> None:
        super().note(body)
        for each in msgspec.json.decode(body, type=dict[str, Any]).get("messages", ()):
            self.times[self.received[each["message"]["messageId"]].data.decode()] += 1


@dataclass(frozen=True, slots=True)
class Clients:
    publishers: Sequence[Worker]
    consumers: Sequence[Worker]

    def check(self) -> None:
        for each in (*self.publishers, *self.consumers):
            if each.has_failed:
                raise GaveUp(f"{each.name} ended: {each.last_words}")

    def balance(self, receiver: Counting) -> Balance:
        consumed = [each.book for each in self.consumers]
        return balance([each.book for each in self.publishers], consumed, receiver.times)

    def finish(self) -> None:
        stop(self.publishers)
        stop(self.consumers)


def play(folder: Path, options: argparse.Namespace) -> bool:
    began, small = perf_counter(), options.small
    with pushing.receiving(Counting) as receiver, ExitStack() as parts:
        day = made_up(SMALL if small else FULL, receiver.pushed)
        old = parts.enter_context(OldSide(folder / "old", is_original=_is_original()))
        _fill(old, day)
        new = NewSide(folder, receiver.ca)
        parts.callback(new.stop)
        ca, chain, key = self_signed(str(folder))
        both = write_secret(folder / "haproxy.pem", Path(chain).read_text() + Path(key).read_text())
        proxy = parts.enter_context(MovingHaproxy(folder, old.port, old.certificate, new.port, both))
        operator = Operator(old.address, new, proxy, day.admin_token, folder)
        push = parts.enter_context(_old_push_server(folder, proxy.url, ca, receiver))
        clients = _clients(parts, proxy.url, ca, folder)
        before = answers(old.address.url, str(old.certificate), day.admin_token, day.odd)
        print(f"{len(before)} answers of the old service are noted.", flush=True)
        _move(operator, old, new, push, clients, pause=2 if small else 10)
        _settle(clients, receiver)
        found = [*operator.verify(), *differences(before, answers(new.url, True, day.admin_token, day.odd))]
        result = clients.balance(receiver)
    return _tell(day, result, found, perf_counter() - began)


def _is_original() -> bool:
    try:
        program()
    except CannotBuild as why:
        print(f"The old service is a stand-in: {why}", flush=True)
        return False
    print("The old service is the original.", flush=True)
    return True


def _fill(old: OldSide, day: Day) -> None:
    began = perf_counter()
    write_documents(day, old.address.mongodb)
    asyncio.run(write_messages(day, old.address.kafka))
    old.start_api()
    users, topics = len(day.collections["users"]), len(day.collections["topics"])
    print(
        f"The old service runs: {users} users, {topics} topics, {day.kept:,} messages,"
        f" written in {perf_counter() - began:.1f} s.",
        flush=True,
    )


@contextmanager
def _old_push_server(folder: Path, url: str, ca: str, receiver: Counting) -> Iterator[Process]:
    """Deliver for the old service until the block ends: `ams push`, which the reference's own is replaced by before."""
    flags = ["--port", "0", "--ops-port", "0", "--no-tls-enabled", "--push-allow", pushing.ALLOWED]
    environment = {**PROGRAM_PATH, "AMS_ENDPOINT": url, "AMS_TOKEN": site.WORKER_TOKEN, "AMS_CA": ca}
    command = python("ams.cli.main", "push", *flags, "--push-ca-file", receiver.ca)
    push = Process("push server", command, folder / "push.log", environment=environment)
    push.start()
    try:
        yield push
    finally:
        push.kill()


def _clients(parts: ExitStack, url: str, ca: str, folder: Path) -> Clients:
    def start(way: str, work: str, who: site.Who) -> Worker:
        environment = {**os.environ, **PROGRAM_PATH, "AMS_TOKEN": who.token, "AMS_CA": ca}
        made = Worker(f"{way}-{work}", python("demo.migrate.clients", way, work, url), environment, folder)
        parts.callback(stop, [made])
        return made

    clients = Clients(
        [start(way, PUBLISH, site.publisher(way)) for way in site.WAYS],
        [start(way, "consume", site.subscriber(way)) for way in site.WAYS if way != site.PUSHED],
    )
    print(f"{len(clients.publishers)} programs publish and {len(clients.consumers)} consume.", flush=True)
    return clients


def _move(operator: Operator, old: OldSide, new: NewSide, push: Process, clients: Clients, *, pause: float) -> None:
    odd = operator.plan()
    print(f"plan: {sum(odd.values())} things do not go over as they are, of {len(odd)} kinds.", flush=True)
    for turn in ("first", "second"):
        print(f"copy: the {turn} took {operator.copy():.1f} s.", flush=True)
        clients.check()
    push.stop()
    with operator.services(old.stop_api, new.start):
        began = perf_counter()
        operator.cut()
    print(f"cut: took {perf_counter() - began:.1f} s.", flush=True)
    time.sleep(pause)
    clients.check()


def _settle(clients: Clients, receiver: Counting) -> None:
    clients.finish()
    sent = balance([each.book for each in clients.publishers if each.name.startswith(site.PUSHED)], [], receiver.times)
    until = time.monotonic() + PATIENCE
    while len(receiver.times) < sent.published and time.monotonic() < until:
        time.sleep(0.1)


def _tell(day: Day, result: Balance, found: Sequence[str], seconds: float) -> bool:
    for heading, lines in (
        ("Differences", found), ("Lost", result.lost), ("Repeated", result.repeated), ("Refused", result.refused),
    ):  # fmt: skip
        if lines:
            print(f"\n{heading}:", *(f"  {each[:400]}" for each in lines[:MOST_TOLD]), sep="\n")
    lost = len(result.lost) + len(found)
    print(
        f"migrate-demo: users {len(day.collections['users'])} topics {len(day.collections['topics'])}"
        f" messages {day.kept + result.published} lost {lost} repeated {len(result.repeated)}"
        f" refused {len(result.refused)} seconds {seconds:.1f} pause {result.pause:.1f}"
    )
    return not (lost or result.repeated or result.refused)


if __name__ == "__main__":
    failures = (DidNotStart, CannotFetch, CommandFailed, GaveUp)
    sys.exit(service.run_demo("migrate", "The reference is moved under load.", play, *failures, small=False))
