"""Where the processor time of a request goes, found by loading a server that runs under `bench.traced`."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench import preparing
from bench.callers import Acknowledge, Consume, Publish, Pull, Read, Work
from bench.flame import picture
from bench.kernel import processor_seconds_of_started
from bench.load import Job
from bench.processes import ROOT, Failed, RunningLoad, Server, Service, bare
from bench.run import HEAD_START_SECONDS, Bench
from bench.steps import step_of
from bench.traced import Called, Trace

ASIDE = (
    "thread that stores messages: pack, checksum, hand back",
    "thread that stores messages: the disk, in the kernel",
    "thread that stores cursors",
    "other threads",
    "worker processes",
)
"""Steps beside the event loop."""
LEAST = 0.05
"""Microseconds; less is not shown."""
PICTURES = ROOT / "bench" / "pictures"
_NO_FUNCTION = "the event loop itself "
_TRACER = " bench/traced.py"
WRITE_SECONDS = 30.0
"""How long a trace may take to be there."""
STORES, CURSORS = "ams-log-committer", "cursors"
"""The threads that store messages and cursors."""


class Kind(NamedTuple):
    """Requests to look at."""

    name: str
    title: str
    connections: int
    work: Callable[[Bench, Service], Work]


def _publish(messages: int, *, keys: bool = False) -> Callable[[Bench, Service], Work]:
    def work(_: Bench, service: Service) -> Work:
        [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "publish", 1)
        return Publish([topic], messages, keys=keys)

    return work


def _pull(bench: Bench, service: Service) -> Work:
    return Pull(_backlog(bench, service), 100)


def _consume(bench: Bench, service: Service) -> Work:
    return Consume(_backlog(bench, service), 100)


def _backlog(bench: Bench, service: Service) -> list[str]:
    topics = preparing.topics(service, preparing.project(service, "BENCH"), "pull", 1)
    subscriptions = preparing.subscriptions(service, topics, PULL.connections)
    preparing.fill(service, topics, bench.plan.backlog)
    preparing.spread(service, subscriptions, bench.plan.backlog)
    return subscriptions


def _read(bench: Bench, service: Service) -> Work:
    [topic] = preparing.topics(service, preparing.project(service, "BENCH"), "read", 1)
    preparing.fill(service, [topic], bench.plan.backlog)
    return Read(topic, 2000, bench.plan.backlog, "application/vnd.apache.arrow.stream")


def _acknowledge(_: Bench, service: Service) -> Work:
    topics = preparing.topics(service, preparing.project(service, "BENCH"), "ack", 1)
    subscriptions = preparing.subscriptions(service, topics, ACKNOWLEDGE.connections)
    preparing.fill(service, topics, 5000, size=64)
    return Acknowledge(subscriptions, 5000)


PUBLISH = Kind("publish-1", "a publish of 1 message", 64, _publish(1))
PUBLISH_100 = Kind("publish-100", "a publish of 100 messages", 16, _publish(100))
PULL = Kind("pull-100", "a pull of 100 messages", 16, _pull)
ACKNOWLEDGE = Kind("acknowledge", "an acknowledgement", 64, _acknowledge)
LONE = Kind("publish-lone", "a publish of 1 message, of a caller who is alone", 1, _publish(1))
IDEMPOTENT = Kind("idempotent", "a publish of 1 message with an idempotency key", 64, _publish(1, keys=True))
CONSUME = Kind("consume", "a pull of 100 messages, or its acknowledgement", 16, _consume)
READ = Kind("read-arrow", "a range of 2000 messages as Arrow", 16, _read)
KINDS = (PUBLISH, PUBLISH_100, IDEMPOTENT, PULL, CONSUME, ACKNOWLEDGE, READ)


@dataclass(frozen=True)
class Profile:
    """Processor time of a request, in microseconds."""

    kind: Kind
    requests_per_second: float
    requests: float
    """In the time that was looked at."""
    stacks: Sequence[tuple[Sequence[str], float]]
    """Of the event loop's thread: `FUNCTION FILE`, outermost first, and microseconds."""
    threads: dict[str, float]
    """Microseconds of the other threads."""
    started: float
    """Microseconds of the processes that the server started."""
    disk: dict[str, Called]
    """Calls of the other threads that touch a disk, by `THREAD CALL`."""

    @property
    def loop(self) -> float:
        """Microseconds of the event loop's thread."""
        return sum(took for _, took in self.stacks)

    @property
    def in_calls_of_the_disk(self) -> float:
        """Microseconds by the clock that the thread that stores messages is in calls for the disk, for a request."""
        return 1e6 * sum(each.wall for name, each in self.disk.items() if name.startswith(STORES)) / self.requests

    @property
    def whole(self) -> float:
        return self.loop + sum(self.threads.values()) + self.started

    def aside(self) -> list[tuple[str, float]]:
        """Return what others than the event loop take; the kernel's part of the thread that stores by itself."""
        kernel = (
            1e6 * sum(each.processor for name, each in self.disk.items() if name.startswith(STORES)) / self.requests
        )
        stores, cursors = self.threads.get(STORES, 0.0), self.threads.get(CURSORS, 0.0)
        others = sum(self.threads.values()) - stores - cursors
        parts = (max(0.0, stores - kernel), kernel, cursors, others, self.started)
        return [(name, took) for name, took in zip(ASIDE, parts, strict=True) if took >= LEAST]

    def steps(self) -> dict[str, float]:
        """Return the microseconds of the event loop's thread by step."""
        return _summed((step_of(frames), took) for frames, took in self.stacks)

    def functions(self) -> list[tuple[str, float]]:
        """Return what each function of the event loop's thread takes without those it calls, most first."""
        found = _summed((frames[-1] if frames else _NO_FUNCTION, took) for frames, took in self.stacks)
        return sorted(found.items(), key=lambda each: -each[1])

    def draw(self) -> Path:
        """Write the flame picture where those of all kinds are; return its path."""
        PICTURES.mkdir(exist_ok=True)
        file = PICTURES / f"{self.kind.name}.svg"
        file.write_text(self.picture())
        return file

    def picture(self) -> str:
        """Return the flame picture: below the whole is one box for the event loop, and one for each part of others."""
        shown: list[tuple[Sequence[str], float]] = [(("event loop ", *frames), took) for frames, took in self.stacks]
        shown += [((f"{name} ",), took) for name, took in self.aside()]
        return picture(f"{self.kind.title}: {self.whole:.1f} µs of processor time", shown, "µs")


def _summed(parts: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, took in parts:
        found[name] = found.get(name, 0.0) + took
    return found


def together(profiles: Sequence[Profile]) -> Profile:
    """Return one profile of several of the same kind, by the requests of each."""
    requests = sum(each.requests for each in profiles)
    parts = [(each, each.requests / requests) for each in profiles]
    disk: dict[str, Called] = {}
    for each in profiles:
        for name, called in each.disk.items():
            before = disk.get(name, Called())
            disk[name] = Called(
                before.calls + called.calls, before.processor + called.processor, before.wall + called.wall
            )
    return Profile(
        profiles[0].kind,
        sum(part * each.requests_per_second for each, part in parts),
        requests,
        [(frames, part * took) for each, part in parts for frames, took in each.stacks],
        _summed((name, part * took) for each, part in parts for name, took in each.threads.items()),
        sum(part * each.started for each, part in parts),
        disk,
    )


def of_service(bench: Bench, kind: Kind, seconds: float) -> Profile:
    """Look at the service; raises `Failed`."""
    with bench.data_folder() as data:
        trace = data.with_name("trace.json")
        with Service(data, under=_under(trace)) as service:
            return _profile(kind, service, service.token, kind.work(bench, service), seconds, trace)


def of_bare(bench: Bench, kind: Kind, messages: int, seconds: float) -> Profile:
    """Look at the bare handler with as large publishes; raises `Failed`."""
    with bench.data_folder() as data:
        trace = data.with_name("trace.json")
        work = Publish(["projects/BENCH/topics/bare"], messages)
        with bare(data.parent, under=_under(trace)) as server:
            return _profile(kind, server, "none", work, seconds, trace)


def _under(trace: Path) -> list[str]:
    return ["bench.traced", str(trace)]


def _profile(kind: Kind, server: Server, token: str, work: Work, seconds: float, file: Path) -> Profile:
    job = Job(server.url, token, work, kind.connections, seconds + 2 * HEAD_START_SECONDS)
    running = RunningLoad(job)
    time.sleep(HEAD_START_SECONDS)
    before = processor_seconds_of_started(server.pid)
    os.kill(server.pid, signal.SIGUSR1)
    time.sleep(seconds)
    os.kill(server.pid, signal.SIGUSR2)
    started = processor_seconds_of_started(server.pid) - before
    outcome = running.outcome()
    trace = _written(file)
    requests = outcome.requests_per_second * trace.seconds
    stacks = [(_below_the_loop(stack.frames), stack.seen) for stack in trace.stacks]
    stacks = [(frames, seen) for frames, seen in stacks if not any(each.endswith(_TRACER) for each in frames)]
    whole = sum(seen for _, seen in stacks)
    each = 1e6 * trace.main / max(whole, 1) / requests
    return Profile(
        kind,
        outcome.requests_per_second,
        requests,
        [(frames, each * seen) for frames, seen in stacks],
        {name: 1e6 * used / requests for name, used in trace.threads.items()},
        1e6 * started / requests,
        trace.disk,
    )


def _written(file: Path) -> Trace:
    until = time.monotonic() + WRITE_SECONDS
    while not file.exists():
        if time.monotonic() > until:
            raise Failed("a traced server did not write its trace")
        time.sleep(0.05)
    return msgspec.json.decode(file.read_bytes(), type=Trace)


def _below_the_loop(frames: Sequence[str]) -> Sequence[str]:
    """Leave away what is the same in every stack: how the program came to run the event loop."""
    begun = [number for number, frame in enumerate(frames) if frame.startswith("Runner.run ")]
    return frames[begun[-1] + 1 :] if begun else frames
