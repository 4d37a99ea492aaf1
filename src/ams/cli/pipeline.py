"""`ams pipeline` and `ams archive`: jobs over the topics of a project (docs/reference/pipeline.md), and their tables.

Only jobs load Spark; `check` never starts it. Archives and tables need no Spark.
"""

import os
import threading
import traceback
from collections.abc import MutableMapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ams.cli.arguments import Output, Texts, argument, option, pairs, topic_names
from ams.cli.command import CommandGroup, Session, with_options
from ams.cli.exit_codes import Exit, Usage
from ams.cli.extras import require_extras
from ams.cli.output import Format, cell, columns, fields, note, printable, write
from ams.cli.times import seconds_of, time_of
from ams.client.bearer import BearerFile
from ams.client.connection import TOKEN_VARIABLES
from ams.pipeline.errors import CheckFailed, PipelineError, StoreFailed, WrongJobFile, WrongTable

if TYPE_CHECKING:
    from ams.pipeline.job_run import RunPlan

app = CommandGroup()
tables = CommandGroup(
    "ams pipeline table history ams-pipeline/accounting/results/sites",
    "ams pipeline table restore ams-pipeline/accounting/results/sites 2024-03-05",
    "ams pipeline table merge archive --partition date=2024-03-04",
    "ams pipeline table vacuum archive --remove",
    help="Look after tables of jobs: history, restore, merge, vacuum, check.",
)
app.add_typer(tables, name="table")

WORK_FOLDER = "ams-pipeline"  # where the folders of runs are, each under its name, unless `--work` says otherwise

Job = Annotated[str | None, argument("[JOB]", "Its options instead of all jobs.")]
Table = Annotated[str, argument("TABLE", "Folder of the table.")]
Version = Annotated[str, argument("VERSION", "A number, or a time: the version of then.")]
Target = Annotated[str, argument("FILE|JOB", "Job, its Python file, or a file of its options (.yaml; - is stdin).")]
Settings = Annotated[Texts, option("Option of the job; repeatable.", "--set", metavar="KEY=VALUE")]
Work = Annotated[
    str | None, option(f"Folder of the run; default {WORK_FOLDER}/NAME.", metavar="DIR", show_default=False)
]


@app.does()
def run(
    session: Session,
    target: Target,
    settings: Settings = None,
    work: Work = None,
    every: Annotated[str | None, option("Go on, with a batch each TIME, such as 10s.", metavar="TIME")] = None,
    accept_change: Annotated[
        bool, option("Go on with a folder although options are others now.", "--accept-change")
    ] = False,
    skip_lost: Annotated[
        bool, option("Go on where messages are kept no longer that were not read.", "--skip-lost")
    ] = False,
    master: Annotated[str | None, option("Master of a Spark cluster; default: in this process.", metavar="URL")] = None,
    memory: Annotated[str, option("Memory of Spark's driver.", metavar="SIZE")] = "1g",
    conf: Annotated[Texts, option("Setting of Spark; repeatable.", metavar="KEY=VALUE")] = None,
    debug: Annotated[bool, option("Let Spark talk, and show where failures came from.", "--debug")] = False,
) -> None:
    """Run a job until it has caught up, or with --every until it is stopped.

    SIGTERM and Ctrl-C end it after the batch at work. Run again, it goes on where it was.
    """
    plan = _plan(target, settings)
    interval = _interval(every)
    folder = _folder(plan, work)
    hand_over(session, os.environ)
    from ams.pipeline.job_run import Setup, start

    setup = Setup(
        work=folder, project=session.project, source=source_of(session), every=interval, accept_change=accept_change,
        skip_lost=skip_lost, master=master, memory=memory,
        settings=({"spark.log.level": "WARN"} if debug else {}) | pairs(conf, "--conf"), debug=debug,
    )  # fmt: skip
    try:
        ended = start(plan, setup)
    except (PipelineError, StoreFailed, WrongTable) as error:
        if debug:
            note("".join(traceback.format_exception(error)))
        raise
    session.show(ended, str(ended))
    if ended.stopped:
        raise typer.Exit(Exit.INTERRUPTED)


@app.command()
def check(target: Target, settings: Settings = None) -> None:
    """Say what is wrong with a job's file or options, without starting Spark."""
    plan = _plan(target, settings)
    note(f"{target}: {plan.name} can be run")


@app.does()
def show(session: Session, target: Target, settings: Settings = None, work: Work = None) -> None:
    """Say what a job would do, and where its last run got to."""
    plan = _plan(target, settings)
    folder = _folder(plan, work)
    connected = {"service": session.client.endpoint, "project": session.project, "work": str(folder)}
    standing = _standing(folder)
    text = "\n".join([fields({"name": plan.name, **connected}), *map(printable, plan.lines), fields(standing)])
    session.show({"name": plan.name, **connected, "does": plan.lines, "standing": standing}, text)


@app.command(name="list")
def list_jobs(job: Job = None, output: Output = Format.TABLE) -> None:
    """List the built-in jobs, or the options of one of them with their defaults."""
    require_extras("spark")
    from ams.pipeline.jobs import JOBS, load
    from ams.pipeline.jobs.base import describe_options

    if job is None:
        found = [{"job": each.name, "summary": each.summary} for each in map(load, sorted(JOBS))]
        headers = ("JOB", "WHAT IT DOES")
    else:
        found = describe_options(load(job).options)
        headers = ("OPTION", "DEFAULT", "MEANING")  # type: ignore[assignment]  # as many as the rows have
    rows = [tuple(each.values()) for each in found]
    write(output, found, columns(headers, rows))


def _plan(target: str, settings: Texts) -> "RunPlan":
    require_extras("spark")
    from ams.pipeline.plans import read_plan

    try:
        return read_plan(target, settings or ())
    except WrongJobFile as error:
        for each in error.findings:
            note(printable(f"{error.file}:{each}"))
        count = len(error.findings)
        raise Usage(f"{error.file}: {count} {'mistake' if count == 1 else 'mistakes'}; nothing was started") from error


def _folder(plan: "RunPlan", work: str | None) -> Path:
    return Path(os.path.abspath(work or os.path.join(WORK_FOLDER, plan.name)))


def source_of(session: Session) -> dict[str, str]:
    """Return endpoint and project as options; the token is passed separately, so that no Spark plan holds it."""
    source = {"endpoint": session.client.endpoint, "project": session.project}
    return source | ({"ca": os.path.abspath(session.at.ca)} if session.at.ca else {})


def hand_over(session: Session, environment: MutableMapping[str, str]) -> None:
    """Put the connection into the environment, which Spark inherits."""
    for name in (*TOKEN_VARIABLES, "AMS_PROFILE"):
        environment.pop(name, None)
    environment["AMS_ENDPOINT"] = session.client.endpoint
    if isinstance(session.at.bearer, BearerFile):
        environment["AMS_BEARER_TOKEN_FILE"] = session.at.bearer.path
    elif isinstance(session.at.bearer, str):
        environment["AMS_BEARER_TOKEN"] = session.at.bearer
    else:
        environment["AMS_TOKEN"] = session.at.token


def _standing(folder: Path) -> dict[str, str]:
    from ams.pipeline.checkpoint import QUARANTINE, read_expected, read_standing
    from ams.pipeline.tables import count

    broken = count(folder / QUARANTINE)
    standing = read_standing(folder)
    if standing is None:
        return {"last batch": "none yet"}
    expected = read_expected(folder)
    return {
        "last batch": f"{standing.batch}, at {standing.time}",
        "messages": f"{standing.messages:,}",
        "broken": f"{broken:,}",
        "behind": "" if standing.lag is None else f"{standing.lag:,}",
        **{
            f"expectation {name}": f"failed by {each.failed:,} of {each.rows:,} rows"
            for name, each in {**expected.rows, **expected.result}.items()
        },
    }


def _interval(every: str | None) -> str | None:
    if every is None:
        return None
    seconds = seconds_of(every, f"--every {every!r} is no time such as 10s or 5m")
    if seconds <= 0:
        raise Usage("--every must be longer than nothing")
    return f"{round(seconds * 1000)} milliseconds"


@tables.command()
def history(
    table: Table,
    limit: Annotated[int | None, option("The newest so many only.", metavar="N", min=1)] = None,
    output: Output = Format.TABLE,
) -> None:
    """List the versions that are kept, newest first: when they came, by what, and how many rows and files."""
    require_extras("tables")
    from ams.tables import upkeep

    found = [each._asdict() for each in upkeep.history(table, limit)]
    headers = ("VERSION", "TIME", "WHAT", "BATCH", "FILES", "ROWS", "FILES GONE")
    rows = [{**done, "time": done["time"].isoformat(timespec="milliseconds")} for done in found]
    write(output, found, columns(headers, [tuple(map(cell, row.values())) for row in rows]))


@tables.command()
def restore(table: Table, version: Version) -> None:
    """Make the rows those of an earlier version again; a new version, so it can be undone.

    The run that writes the table goes on with its next batch. What batches since that version brought is gone.
    """
    require_extras("tables")
    from ams.tables import upkeep

    try:
        wanted = int(version) if version.isdigit() else time_of(version)
    except ValueError:
        raise Usage(f"{version!r} is neither a number nor a time such as 2024-03-05 or 2024-03-05T12:00:00Z") from None
    found = upkeep.restore(table, wanted)
    note(f"{table}: version {found.version} has the rows of {version}")


@tables.command()
def merge(
    table: Table,
    partition: Annotated[Texts, option("Only partitions with this value; repeatable.", metavar="KEY=VALUE")] = None,
    order: Annotated[str | None, option("Keep rows in the order of this column.", metavar="COLUMN")] = None,
) -> None:
    """Put a few large files in the place of many small ones; the rows stay the same, also for who reads meanwhile."""
    require_extras("tables")
    from ams.tables import upkeep
    from ams.tables.table import open_table

    wanted = pairs(partition, "--partition")
    chosen = None
    if wanted:
        found = [file.partition for file in open_table(table).files]
        chosen = [
            each for each in found if wanted.items() <= {name: value or "" for name, value in each.items()}.items()
        ]
    gone = upkeep.merge(table, chosen, order=order)
    note(f"{table}: {gone} files were put together")


@tables.command()
def vacuum(
    table: Table,
    remove: Annotated[bool, option("Remove them; otherwise they are only listed.", "--remove")] = False,
    output: Output = Format.TABLE,
) -> None:
    """List the files that no version needs that is still kept, or remove them."""
    require_extras("tables")
    from ams.tables import upkeep

    found = upkeep.vacuum(table, dry_run=not remove)
    if found or output is Format.JSON:
        write(output, found, "\n".join(map(printable, found)))
    note(f"{table}: {len(found)} files {'were removed' if remove else 'can go: --remove'}")


@tables.command("check")
def check_table(table: Table, output: Output = Format.TABLE) -> None:
    """Compare the log of a table with its files; ends with an error when they differ."""
    require_extras("tables")
    from ams.tables import upkeep

    report = upkeep.check(table)
    lines = [f"{report.rows:,} rows in {report.files:,} files, {report.size:,} bytes", *report.wrong]
    write(output, asdict(report), "\n".join(map(printable, lines)))
    if report.unknown:
        note(f"{table}: {len(report.unknown)} files of attempts that failed, or of a batch at work; vacuum takes them")
    if report.wrong:
        raise CheckFailed(f"{table}: {len(report.wrong)} of {report.files} files are not as its log says")


@with_options
def archive(
    session: Session,
    path: Annotated[str, argument("PATH", "Folder of the archive; made if it is absent.")],
    topics: Annotated[
        Texts, argument("[TOPIC...]", "Topics, also with * and ?; default: all of the project.", topic_names)
    ] = None,
    every: Annotated[str | None, option("Go on, and look for messages each TIME, such as 1m.", metavar="TIME")] = None,
    batch_messages: Annotated[int, option("Messages that are stored at a time.", min=1)] = 200_000,
    merge: Annotated[bool, option("Whether small files of closed days are merged.")] = True,
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
    require_extras("tables")
    from ams.pipeline.options import RawOptions
    from ams.pipeline.progress import told_by_signals
    from ams.pipeline.service_calls import Service
    from ams.pipeline.topic_archive import Archiver, alone
    from ams.tables.location import Location

    def say(text: str) -> None:
        note(printable(text))

    wrong = f"--every {every!r} is no time such as 10s or 5m"
    interval = None if every is None else seconds_of(every, wrong)
    if interval is not None and not 0 < interval <= threading.TIMEOUT_MAX:
        raise Usage(wrong)
    environment: dict[str, str] = {}
    hand_over(session, environment)
    access, _ = RawOptions(source_of(session)).access(environment)
    location, stopping = Location.of(path), threading.Event()
    with alone(location), Service(access) as service, told_by_signals(stopping, say):
        archiver = Archiver(
            service, location, stopping, say, session.project, wanted=tuple(topics or ("*",)),
            batch_messages=batch_messages, merge=merge, closed_after=closed_after, file_bytes=file_mib * 2**20,
            skip_lost=skip_lost,
        )  # fmt: skip
        archiver.begin()
        archiver.run(interval)
    done = {
        "messages": archiver.progress.messages,
        "topics": len(archiver.topics),
        "files": archiver.files,
        "seconds": round(archiver.progress.seconds, 1),
    }
    session.show(done, "archive: " + " ".join(f"{name} {count}" for name, count in done.items()))
    if stopping.is_set() and interval is None:
        raise typer.Exit(Exit.INTERRUPTED)
