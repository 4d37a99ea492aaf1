"""The command line of the demo, and the order of its steps."""

import argparse
import sys
from pathlib import Path

from argo_ams_library import AmsException

from demo import pushing, report, service
from demo.job import Job
from demo.pushing import Receiver
from demo.service import FAILED, INTERRUPTED, OK, Service, trust_of_library
from demo.traffic import Message, Wire, untouched


def main() -> int:
    """Run the demo; return 0 when all came out as it went in, 1 when not, 130 when it was interrupted."""
    options = _options()
    service.stop_by_any_interruption()
    job = Job(seed=options.seed, messages=options.messages, wire=_alteration(options.alter))
    status = INTERRUPTED
    try:
        with (
            pushing.receiving(Receiver) as receiver,
            service.running(
                options.data,
                options.port,
                "--push-allow",
                pushing.ALLOWED,
                "--push-ca-file",
                receiver.ca,
                *_for_google(options),
            ) as running,
        ):
            status = _run(job, running, receiver)
            if options.keep_serving and status == OK:
                print(report.what_next(running), flush=True)
                running.output.show()
                print("The service ended by itself.", file=sys.stderr)
                status = FAILED
    except service.DidNotStart as refusal:
        print(f"{refusal} (with make: PORT=9000 or DATA=other-folder)", file=sys.stderr)
        return FAILED
    except AmsException as error:
        print(f"\ndemo: a call failed: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"\nStopped; the data stay in {options.data}.")
    print(report.so_far(job) if status == INTERRUPTED else report.verdict(job))
    return status


def _run(job: Job, running: Service, receiver: Receiver) -> int:
    print(f"The service is ready at {running.url}, its data in {running.data}.")
    print(
        f"The administrator's token is in {running.token_file}, the certificate to trust in {running.ca}.\n", flush=True
    )
    trust_of_library(running.ca)
    progress = report.Progress()
    admin_token = running.token_file.read_text().strip()
    pushing.subscribe(running, admin_token, receiver)
    job.run(running.endpoint, admin_token, progress)
    progress.end()
    print(report.summary(job), flush=True)
    if job.findings():
        print(report.findings(job), file=sys.stderr)
        return FAILED
    pushed = pushing.outcome(job.results, receiver)
    print(report.by_push(pushed), flush=True)
    return OK if pushed.is_whole and report.run_metrics(running) else FAILED


def _for_google(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the flags by which the service that goes on serves Google's clients, as their emulator does."""
    if not options.keep_serving:
        return ()
    port = options.port + service.PUBSUB_PORT - report.DEFAULT_PORT if options.port else 0
    return ("--pubsub-port", str(port), "--pubsub-emulator")


def _alteration(place: str | None) -> Wire:
    """Return what changes one byte of one message; `place` is `TOPIC:N`, counted from 0 in this run."""
    if place is None:
        return untouched
    topic, _, number = place.partition(":")

    def alter(on: str, at: int, message: Message) -> Message:
        if (on, at) != (topic, int(number)):
            return message
        return message._replace(data=bytes([message.data[0] ^ 1]) + message.data[1:])

    return alter


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo", description="Run the main job against a service of its own."
    )
    parser.add_argument("--data", type=Path, default=report.DEFAULT_DATA, help="data folder (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=report.DEFAULT_PORT, help="port, 0 = a free one (default: %(default)s)"
    )
    parser.add_argument("--keep-serving", action="store_true", help="go on serving until Ctrl-C when the job is done")
    parser.add_argument("--messages", type=int, default=12000, help="messages to send (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which traffic to make (default: %(default)s)")
    # For the test of the comparison: store message N of TOPIC with one byte changed.
    parser.add_argument("--alter", metavar="TOPIC:N", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
