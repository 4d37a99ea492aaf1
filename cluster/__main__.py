"""The command line of the parts: `python -m cluster kafka`."""

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import NoReturn

from cluster.jars import CannotFetch
from cluster.kafka import Brokers
from cluster.processes import DidNotStart

OK, FAILED = 0, 1


def main() -> int:
    """Run what the command line names; return 0 when it was stopped, 1 when it could not start."""
    parser = argparse.ArgumentParser(prog="python -m cluster", description="Real parts of the cluster shape.")
    parser.add_argument("what", choices=sorted(COMMANDS))
    command = COMMANDS[parser.parse_args().what]
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix="ams-cluster-") as folder:
            return command(Path(folder))
    except (CannotFetch, DidNotStart) as refusal:
        print(refusal, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("\nStopped.")
        return OK


def kafka(folder: Path) -> int:
    """Run one broker until Ctrl-C."""
    with Brokers(folder) as brokers:
        print(f"Kafka is ready at {brokers.servers}, its log in {brokers.process(1).log}.")
        print(f"Try: ams serve --log kafka --kafka-servers {brokers.servers} --kafka-replication 1 --kafka-min-isr 1")
        print("Ctrl-C stops it; what was written goes with it.", flush=True)
        signal.pause()
    return OK


COMMANDS = {"kafka": kafka}


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
