"""`ams archive`: keeps topics in a Delta table; needs neither Spark nor Java."""

import threading
from typing import TYPE_CHECKING, Annotated

import typer

from ams.cli.arguments import argument, option, seconds_said
from ams.cli.command import Session, with_options
from ams.cli.completing import topic_names
from ams.cli.exits import Exit, Usage
from ams.cli.extras import need
from ams.cli.output import note, printable
from ams.cli.pipeline import hand_over, source_of

if TYPE_CHECKING:
    from ams.pipeline.archiving import Archiver

_MEBIBYTE = 2**20

Path = Annotated[str, argument("PATH", "Folder of the archive; made if it is absent.")]
Topics = Annotated[
    list[str] | None, argument("[TOPIC...]", "Topics, also with * and ?; default: all of the project.", topic_names)
]


@with_options
def archive(
    session: Session,
    path: Path,
    topics: Topics = None,
    every: Annotated[str | None, option("Go on, and look for messages each TIME, such as 1m.", metavar="TIME")] = None,
    batch_messages: Annotated[int, option("Messages that are stored at a time.", min=1)] = 200_000,
    merge: Annotated[bool, option("Whether small files of closed days are merged.", "--merge/--no-merge")] = True,
    closed_after: Annotated[int, option("Days after its end that a day is closed.", metavar="DAYS", min=0)] = 1,
    file_mib: Annotated[int, option("Size of merged files, in MiB.", min=1)] = 256,
    skip_lost: Annotated[
        bool, option("Go on where messages are kept no longer that were not archived.", "--skip-lost")
    ] = False,
) -> None:
    """Keep topics in a Delta table, without Spark.

    Messages are copied, by project, topic and day, each exactly once, until it has caught up. SIGTERM and Ctrl-C end it
    after the batch at work. Called again, it goes on where it was: the table says where.
    """
    need("tables")
    from ams.pipeline.archiving import Archiver, Wanted, alone
    from ams.pipeline.options import Given
    from ams.pipeline.progress import told_by_signals
    from ams.pipeline.service import Service
    from ams.tables.location import Location

    interval = _interval(every)
    wanted = Wanted(
        project=session.project,
        topics=tuple(topics or ("*",)),
        batch_messages=batch_messages,
        merge=merge,
        closed_after=closed_after,
        file_bytes=file_mib * _MEBIBYTE,
        skip_lost=skip_lost,
    )
    environment: dict[str, str] = {}
    hand_over(session, environment)
    access, _ = Given(source_of(session)).access(environment)
    location, stopping = Location.of(path), threading.Event()
    with alone(location), Service(access) as service, told_by_signals(stopping, _say):
        archiver = Archiver(service, location, wanted, stopping, _say)
        archiver.begin()
        archiver.run(interval)
    _show(session, archiver)
    if stopping.is_set() and interval is None:
        raise typer.Exit(Exit.INTERRUPTED)


def _show(session: Session, archiver: "Archiver") -> None:
    done = {
        "messages": archiver.progress.messages,
        "topics": len(archiver.topics),
        "files": archiver.files,
        "seconds": round(archiver.progress.seconds, 1),
    }
    session.show(done, "archive: " + " ".join(f"{name} {count}" for name, count in done.items()))


def _say(text: str) -> None:
    note(printable(text))


def _interval(every: str | None) -> float | None:
    if every is None:
        return None
    seconds = seconds_said(every)
    if seconds is None or not 0 < seconds <= threading.TIMEOUT_MAX:
        raise Usage(f"--every {every!r} is no time such as 10s or 5m")
    return seconds
