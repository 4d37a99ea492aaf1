"""The main job of the demo through haproxy, while one of everything is killed in turn."""

import argparse
import logging
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from argo_ams_library import AmsException

from demo import report
from demo.job import Job
from demo.service import trust_of_library
from demo.traffic import Message
from local_cluster.caretaker import Caretaker
from local_cluster.jars import CannotFetch
from local_cluster.leaders import leading_broker
from local_cluster.local import Cluster, table
from local_cluster.processes import DidNotStart, treat_as_ctrl_c

OK, FAILED, INTERRUPTED = 0, 1, 130
SPREAD_SECONDS = 30.0
"""Seconds that all messages would take without kills, so that each kill falls into a part that takes longer than
`QUIET_SECONDS`."""
RETRIES = 45
"""Retries of the library, a second apart: longer than any outage."""
PATIENCE_SECONDS = 300.0
"""Seconds a consumer waits for more messages: recovery may take long on a busy machine."""
QUIET_SECONDS = 3.0
"""Seconds of traffic before a kill."""
RECOVERY_SECONDS = 180.0
"""Seconds within which a killed part must be back."""


class Fault(NamedTuple):
    """A fault of the cluster; `strike` causes it and returns its target."""

    what: str
    strike: Callable[[Cluster], str]


def main() -> int:
    """Run it. Returns 0 if all messages came out as they went in, although processes were killed."""
    parser = argparse.ArgumentParser(prog="python -m local_cluster.demo", description="The main job while parts die.")
    parser.add_argument("--messages", type=int, default=12000, help="messages to send (default: %(default)s)")
    parser.add_argument("--secure", action="store_true", help="TLS and passwords between all parts")
    options = parser.parse_args()
    treat_as_ctrl_c()
    try:
        return _in_a_folder(options.messages, secure=options.secure)
    except (CannotFetch, DidNotStart) as refusal:
        print(refusal, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("\nStopped.")
        return INTERRUPTED


def _in_a_folder(messages: int, *, secure: bool) -> int:
    """Run it in a temporary folder, which stays after a failure, for its logs."""
    folder = Path(tempfile.mkdtemp(prefix="ams-cluster-"))
    status = FAILED
    try:
        status = _run(folder, messages, secure=secure)
    finally:
        if status == FAILED:
            print(f"The logs are in {folder}.", file=sys.stderr)
        else:
            shutil.rmtree(folder)
    return status


def _run(folder: Path, messages: int, *, secure: bool) -> int:
    print("Starting three brokers, three PostgreSQL servers, three nodes and haproxy.", flush=True)
    blows = Blows()
    job = Job(seed=1, messages=messages, pace=blows.pace, retries=RETRIES, patience=PATIENCE_SECONDS)
    tries = RetryCounter()
    with Cluster(folder, secure=secure) as cluster, Caretaker(cluster, _say) as caretaker:
        print(table(cluster.parts()) + "\n", flush=True)
        trust_of_library(cluster.ca)
        with blows.start_kills(cluster, caretaker):
            failure = _job(job, cluster, blows)
    print(report.summary(job))
    print(f"Calls the library tried again: {tries.count}.\n")
    for error in filter(None, [failure, report.findings(job), *blows.findings]):
        print(error, file=sys.stderr)
    print(report.verdict(job), flush=True)
    return FAILED if failure or job.findings() or blows.findings else OK


def _job(job: Job, cluster: Cluster, blows: "Blows") -> str:
    """Run the job; return the error that ended it early, if any."""
    progress = report.Progress()

    def look(job: Job) -> None:
        progress(job)
        if job.total("acknowledged"):
            blows.begin()

    try:
        job.run(cluster.haproxy.endpoint, cluster.token_file.read_text().strip(), look)
    except AmsException as error:
        return f"a call failed: {error}"
    return ""


class Blows:
    """Kills one part of each kind in turn, each after recovery from the last kill."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        """Faults without recovery, or not done before the job ended."""
        self._begun = threading.Event()
        self._healed = 0
        """Number of past kills."""
        self._counted = threading.Condition()
        self._ended = threading.Event()

    def begin(self) -> None:
        """Allow kills: messages flow."""
        self._begun.set()

    def pace(self, messages: Iterator[Message], count: int) -> Iterator[Message]:
        """Spread messages over the kills: one part before the first, another after each recovery."""
        part, began, first = 0, time.monotonic(), 0
        for number, message in enumerate(messages):
            if number * (len(FAULTS) + 1) // count > part:
                part += 1
                self._wait_healed(part)
                began, first = time.monotonic(), number
            self._ended.wait(max(0.0, began + SPREAD_SECONDS * (number - first) / count - time.monotonic()))
            yield message

    def start_kills(self, cluster: Cluster, caretaker: Caretaker) -> "Falling":
        """Return a context in which the kills happen."""
        thread = threading.Thread(target=self._fall, args=(cluster, caretaker), name="blows")
        return Falling(thread, self._begun, self._ended)

    def _fall(self, cluster: Cluster, caretaker: Caretaker) -> None:
        self._begun.wait()
        try:
            for blow in FAULTS:
                self._deal(blow, cluster, caretaker)
                self._count(1)
        except Exception as error:
            self.findings.append(f"the kills ended early: {error}")
        finally:
            self._count(len(FAULTS))  # however it ended, hold no messages back

    def _count(self, healed: int) -> None:
        with self._counted:
            self._healed += healed
            self._counted.notify_all()

    def _wait_healed(self, kills: int) -> None:
        with self._counted:
            self._counted.wait_for(lambda: self._healed >= kills)

    def _deal(self, blow: Fault, cluster: Cluster, caretaker: Caretaker) -> None:
        if self._ended.wait(QUIET_SECONDS):
            self.findings.append(f"the job ended before this was done: {blow.what}")
            return
        _say(f"{blow.what}: {blow.strike(cluster)}")
        if not caretaker.wait_until_all_well(RECOVERY_SECONDS):
            self.findings.append(f"not well again after {RECOVERY_SECONDS:.0f} s: {blow.what}")


class Falling:
    """The thread of the faults; at the end of the block it is stopped and joined."""

    def __init__(self, thread: threading.Thread, begun: threading.Event, ended: threading.Event) -> None:
        self._thread = thread
        self._begun = begun
        self._ended = ended

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._begun.set()  # also when no message went through
        self._thread.join()


class RetryCounter(logging.Handler):
    """Counts the library's retries: it warns of each."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0
        library = logging.getLogger("argo_ams_library")
        library.addHandler(self)
        library.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Count a warning."""
        self.count += 1


def _kill_node(cluster: Cluster) -> str:
    cluster.nodes["node2"].kill()
    return "node2"


def _kill_leader(cluster: Cluster) -> str:
    number = leading_broker(cluster.brokers)
    cluster.brokers.kill(number)
    return f"broker {number}"


def _kill_primary(cluster: Cluster) -> str:
    number = cluster.postgres.primary
    cluster.postgres.kill(number)
    return f"postgres {number}"


def _kill_standby(cluster: Cluster) -> str:
    number = next(number for number in cluster.postgres.numbers if number != cluster.postgres.primary)
    cluster.postgres.kill(number)
    return f"postgres {number}"


def _reload_haproxy(cluster: Cluster) -> str:
    cluster.haproxy.reload()
    return "haproxy"


FAULTS = (
    Fault("a node is killed", _kill_node),
    Fault("the broker that leads most topics is killed", _kill_leader),
    Fault("the PostgreSQL server that takes writes is killed", _kill_primary),
    Fault("one that follows is killed", _kill_standby),
    Fault("haproxy reads its configuration again", _reload_haproxy),
)


def _say(line: str) -> None:
    print(f"\n*** {line}" if sys.stdout.isatty() else f"*** {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
