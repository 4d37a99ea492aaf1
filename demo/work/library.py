"""One worker with the official library, unmodified: `python -m demo.work.library HOST:PORT TOKEN-FILE BOOK`.

Its acknowledgements name every message of a pull: on a parallel subscription the last one does not stand for all. A job
that fails is not acknowledged, and comes again when its lease has run out, as the library cannot give it back.
"""

import time
from typing import TextIO

from argo_ams_library import AmsServiceException, ArgoMessagingService

from demo.books import note
from demo.library import CALL_SECONDS, go_on
from demo.work.site import JOB_SECONDS, PROJECT, SUBSCRIPTION, is_broken

PULL = 100
"""Messages of a pull: no more than are done well within their deadline."""
TOO_LATE = 408
"""Some of the acknowledgements came after the deadline: those messages come again, the others are done."""


def work(ams: ArgoMessagingService, book: TextIO) -> None:
    """Do the jobs of one pull."""
    done: list[str] = []
    for ack_id, message in ams.pull_sub(SUBSCRIPTION, PULL, timeout=CALL_SECONDS):
        job = message.get_data().decode()
        time.sleep(JOB_SECONDS)
        if not is_broken(job):
            note(book, job)
            done.append(ack_id)
    if not done:
        return
    try:
        ams.ack_sub(SUBSCRIPTION, done, timeout=CALL_SECONDS)
    except AmsServiceException as error:
        if error.code != TOO_LATE:
            raise


if __name__ == "__main__":
    go_on(PROJECT, work)
