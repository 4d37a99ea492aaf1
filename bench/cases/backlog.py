"""Growth: pulling from the oldest of a large backlog against a small one; memory and start with the large one."""

import shutil
from collections.abc import Iterator

from bench import preparing
from bench.callers import Pull
from bench.cases.start import KILLED_SECONDS, restarted, started
from bench.processes import Service
from bench.report import Result, at_most, progress
from bench.run import Bench, slower

CONNECTIONS = 16
PULL = 100
SMALL_BACKLOG = 1000
SIZE = 1024
DISK_PER_MESSAGE = 3000
"""Free bytes wanted for each message of a backlog: twice what it takes, so that nothing else is squeezed."""
MEMORY = 250 * 10**6


def backlog(bench: Bench) -> Iterator[Result]:
    """Yield results for pulling, memory and start. Publish requests of 1000 fill the backlog, as any client would."""
    messages = min(bench.plan.large_backlog, shutil.disk_usage(bench.folder).free // DISK_PER_MESSAGE)
    if messages < bench.plan.large_backlog:
        progress(f"  the disk has space for {messages} messages only")
    with bench.data_folder() as data:
        with Service(data) as service:
            yield from _grown(bench, service, messages)
            service.kill()
        yield started({"folder": f"{messages} messages, after a kill"}, [restarted(data)], KILLED_SECONDS)
        again = [restarted(data) for _ in range(bench.plan.pairs)]
        yield started({"folder": f"{messages} messages"}, again, KILLED_SECONDS)


def _grown(bench: Bench, service: Service, messages: int) -> Iterator[Result]:
    project = preparing.project(service, "BENCH")
    [small] = preparing.topics(service, project, "small", 1)
    [large] = preparing.topics(service, project, "large", 1)
    few = preparing.subscriptions(service, [small], CONNECTIONS)
    lots = preparing.subscriptions(service, [large], CONNECTIONS)
    preparing.fill(service, [small], SMALL_BACKLOG, size=SIZE)
    progress(f"  publishing {messages} messages")
    preparing.fill(service, [large], messages, size=SIZE)
    memory = [service.anonymous_memory()]
    what = f"pull {PULL} from the oldest of {SMALL_BACKLOG} and {messages}"
    pairs = bench.loads(what, (service, Pull(few, PULL)), (service, Pull(lots, PULL)), CONNECTIONS)
    memory.append(service.anonymous_memory())
    params: dict[str, int | str] = {"backlog": messages, "messages": PULL, "connections": CONNECTIONS}
    yield slower("backlog", params, pairs, "small_backlog_messages_s", f"a backlog of {SMALL_BACKLOG}")
    yield Result(
        "memory",
        {"stored": messages},
        {"anonymous_mb": max(memory) / 10**6, "data_folder_mb": service.disk_usage() / 10**6},
        max(memory) / MEMORY,
        "250 MB",
        at_most(1),
    )
