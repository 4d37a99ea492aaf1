"""Programs that workers of demos run, each a process: `python -m demo.programs NAME ARGUMENT ... BOOK`.

work, read            the official library: HOST:PORT TOKEN-FILE BOOK
subscribe             Google's client: HOST:PORT BOOK
publish               Google's client: HOST:PORT COUNT BOOK
"""

import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from argo_ams_library import AmsServiceException, ArgoMessagingService

from demo.site import ARCHIVE, DEADLINE, JOBS, READINGS, is_broken, readings
from demo.workers import note, note_arrival

if TYPE_CHECKING:
    from google.cloud.pubsub_v1.subscriber.message import Message

CALL_SECONDS = 30
PUBLISH_SECONDS = 120  # for one message of Google's client to be answered
JOB_SECONDS = 0.004
"""Duration of a job in workers of the library. Those of `ams work` start a shell for each, which takes longer."""
JOBS_PER_PULL, READINGS_PER_PULL = 100, 500
TOO_LATE = 408
"""Some acknowledgements came after the deadline: those messages come again, the others are done."""


def work(ams: ArgoMessagingService, book: TextIO) -> None:
    """Do the jobs of one pull, and acknowledge each: a failed one comes again when its lease has expired."""
    done: list[str] = []
    for ack_id, message in ams.pull_sub(JOBS.subscription, JOBS_PER_PULL, timeout=CALL_SECONDS):
        job = message.get_data().decode()
        time.sleep(JOB_SECONDS)
        if not is_broken(job):
            note(book, job)
            done.append(ack_id)
    if not done:
        return
    try:
        ams.ack_sub(JOBS.subscription, done, timeout=CALL_SECONDS)
    except AmsServiceException as error:
        if error.code != TOO_LATE:
            raise


def read(ams: ArgoMessagingService, book: TextIO) -> None:
    received = ams.pull_sub(ARCHIVE, READINGS_PER_PULL, timeout=CALL_SECONDS)
    for _, message in received:
        note_arrival(book, message.get_data().decode())
    if received:
        ams.ack_sub(ARCHIVE, [received[-1][0]], timeout=CALL_SECONDS)


def repeat(project: str, step: Callable[[ArgoMessagingService, TextIO], None], *arguments: str) -> NoReturn:
    endpoint, token, book = arguments
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ams = ArgoMessagingService(endpoint=endpoint, token=Path(token).read_text(), project=project)
    with Path(book).open("a", buffering=1) as file:
        while True:
            step(ams, file)


def subscribe(endpoint: str, book: str) -> None:
    from google.cloud import pubsub_v1

    subscriber = pubsub_v1.SubscriberClient(client_options={"api_endpoint": endpoint})
    with Path(book).open("a", buffering=1) as file:

        def handle(message: "Message") -> None:
            text = message.data.decode()
            note_arrival(file, text)
            (message.nack if is_broken(text) else message.ack)()

        path = subscriber.subscription_path(READINGS.project, READINGS.subscription)
        flow = pubsub_v1.types.FlowControl(max_duration_per_lease_extension=DEADLINE)
        stream = subscriber.subscribe(path, handle, flow_control=flow)
        signal.signal(signal.SIGTERM, lambda *_: stream.cancel())
        with suppress(CancelledError):
            stream.result()


def publish(endpoint: str, count: str, book: str) -> None:
    from google.cloud import pubsub_v1

    publisher = pubsub_v1.PublisherClient(
        publisher_options=pubsub_v1.types.PublisherOptions(enable_message_ordering=True),
        client_options={"api_endpoint": endpoint},
    )
    topic = publisher.topic_path(READINGS.project, READINGS.topic)
    sent = [(text, publisher.publish(topic, text.encode(), ordering_key=key)) for key, text in readings(int(count))]
    with Path(book).open("a", buffering=1) as file:
        for text, answer in sent:
            answer.result(PUBLISH_SECONDS)
            note(file, text)


PROGRAMS: dict[str, Callable[..., None]] = {
    "work": lambda *arguments: repeat(JOBS.project, work, *arguments),
    "read": lambda *arguments: repeat(READINGS.project, read, *arguments),
    "subscribe": subscribe,
    "publish": publish,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](*sys.argv[2:])
