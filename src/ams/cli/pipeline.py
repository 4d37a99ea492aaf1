"""`ams pipeline`: runs jobs on Spark over the topics of a project (docs/reference/pipeline.md).

Spark is loaded when a job is; `check` of a definition that is wrong never starts it.
"""

import os
import traceback
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ams.cli import tables
from ams.cli.arguments import Output, argument, option, pairs
from ams.cli.command import Group, Session, examples, with_options
from ams.cli.exits import Exit, Usage
from ams.cli.extras import need
from ams.cli.output import Format, columns, fields, note, printable, write
from ams.client.bearer import BearerFile
from ams.client.connection import TOKEN_VARIABLES
from ams.pipeline.errors import PipelineError, StoreFailed, WrongDefinition, WrongTable

if TYPE_CHECKING:
    from ams.pipeline.running import Plan

app = Group()
app.add_typer(tables.app, name="table")

WORK_FOLDER = "ams-pipeline"
"""Where the folders of runs are, each under its name, unless `--work` says otherwise."""
_TALKATIVE = {"spark.log.level": "WARN"}
"""Log settings of Spark with `--debug`."""

Target = Annotated[str, argument("FILE|JOB", "Definition (.yaml; - is stdin), or job.")]
Settings = Annotated[list[str] | None, option("Option of the job; repeatable.", "--set", metavar="KEY=VALUE")]
Work = Annotated[
    str | None, option(f"Folder of the run; default {WORK_FOLDER}/NAME.", metavar="DIR", show_default=False)
]


@app.command(epilog=examples("ams pipeline run archive -p demo", "ams pipeline run jobs.yaml --every 30s"))
@with_options
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
    conf: Annotated[list[str] | None, option("Setting of Spark; repeatable.", "--conf", metavar="KEY=VALUE")] = None,
    debug: Annotated[bool, option("Let Spark talk, and show where failures came from.", "--debug")] = False,
) -> None:
    """Run a job or a definition until it has caught up, or with --every until it is stopped.

    SIGTERM and Ctrl-C end it after the batch at work. Run again, it goes on where it was.
    """
    plan = _plan(target, settings)
    interval = _interval(every)
    folder = _folder(plan, work)
    hand_over(session, os.environ)
    with _shown_when(debug):
        from ams.pipeline.starting import Setup, start

        setup = Setup(
            work=folder,
            project=session.project,
            source=source_of(session),
            every=interval,
            accept_change=accept_change,
            skip_lost=skip_lost,
            master=master,
            memory=memory,
            settings={**(_TALKATIVE if debug else {}), **pairs(conf, "--conf")},
            debug=debug,
        )
        ended = start(plan, setup)
    session.show(ended, str(ended))
    if ended.stopped:
        raise typer.Exit(Exit.INTERRUPTED)


@app.command()
def check(target: Target, settings: Settings = None) -> None:
    """Say everything that is wrong with a definition, with its lines, without starting Spark."""
    plan = _plan(target, settings)
    note(f"{target}: {plan.name} can be run")


@app.command()
@with_options
def show(session: Session, target: Target, settings: Settings = None, work: Work = None) -> None:
    """Say what a job or a definition would do, and where its last run got to."""
    plan = _plan(target, settings)
    folder = _folder(plan, work)
    connected = {"service": session.client.endpoint, "project": session.project, "work": str(folder)}
    standing = _standing(folder)
    text = "\n".join([fields({"name": plan.name, **connected}), *map(printable, plan.lines), fields(standing)])
    session.show({"name": plan.name, **connected, "does": plan.lines, "standing": standing}, text)


@app.command(name="list")
def list_jobs(
    job: Annotated[str | None, argument("[JOB]", "Its options instead of all jobs.")] = None,
    output: Output = Format.TABLE,
) -> None:
    """List the built-in jobs, or the options of one of them with their defaults."""
    need("spark")
    from ams.pipeline.jobs import JOBS, load
    from ams.pipeline.jobs.base import described

    if job is None:
        found = [{"job": each.name, "summary": each.summary} for each in map(load, sorted(JOBS))]
        headers = ("JOB", "WHAT IT DOES")
    else:
        found = [each._asdict() for each in described(load(job).options)]
        headers = ("OPTION", "DEFAULT", "MEANING")  # type: ignore[assignment]  # as many as the rows have
    rows = [tuple(each.values()) for each in found]
    write(output, found, columns(headers, rows))


def _plan(target: str, settings: list[str] | None) -> "Plan":
    """Read what is to be run; of a file that is wrong, show each mistake before the error."""
    need("spark")
    from ams.pipeline.definition.plans import read_plan

    try:
        return read_plan(target, settings or ())
    except WrongDefinition as error:
        for each in error.findings:
            note(printable(f"{error.file}:{each}"))
        count = len(error.findings)
        raise Usage(f"{error.file}: {count} {'mistake' if count == 1 else 'mistakes'}; nothing was started") from error


def _folder(plan: "Plan", work: str | None) -> Path:
    return Path(os.path.abspath(work or os.path.join(WORK_FOLDER, plan.name)))


def source_of(session: Session) -> dict[str, str]:
    """Return which service and project to read; the token is handed over apart, so that no plan holds it."""
    source = {"endpoint": session.client.endpoint, "project": session.project}
    return source | ({"ca": os.path.abspath(session.ca)} if session.ca else {})


def hand_over(session: Session, environment: MutableMapping[str, str]) -> None:
    """Let Spark, which inherits the environment, find the service as the command line found it."""
    for name in (*TOKEN_VARIABLES, "AMS_PROFILE"):
        environment.pop(name, None)
    environment.update({"AMS_ENDPOINT": session.client.endpoint, **_who(session)})


def _who(session: Session) -> dict[str, str]:
    if isinstance(session.bearer, BearerFile):
        return {"AMS_BEARER_TOKEN_FILE": session.bearer.path}
    return {"AMS_BEARER_TOKEN": session.bearer} if isinstance(session.bearer, str) else {"AMS_TOKEN": session.token}


def _standing(folder: Path) -> dict[str, str]:
    """Return where the last run in a folder got to, and what it set aside."""
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
    """Read the time between batches as Spark takes it."""
    from ams.core.settings import duration_seconds

    if every is None:
        return None
    try:
        seconds = duration_seconds(every)
    except (ValueError, KeyError):
        raise Usage(f"--every {every!r} is no time such as 10s or 5m") from None
    if seconds <= 0:
        raise Usage("--every must be longer than nothing")
    return f"{round(seconds * 1000)} milliseconds"


@contextmanager
def _shown_when(debug: bool) -> Iterator[None]:
    """Show the whole of a failure before its one line."""
    try:
        yield
    except (PipelineError, StoreFailed, WrongTable) as error:
        if debug:
            note("".join(traceback.format_exception(error)))
        raise
