"""`ams check`, `backup`, `restore`, `export`, `import` and `admin rotate-key`: for operators, on what a service keeps.

None of them calls a running service; each loads the engines it needs when it runs.
"""

import contextlib
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ams.cli.arguments import DATA_FOLDER, DataFolder, Output, argument, option
from ams.cli.exits import Exit
from ams.cli.extras import need
from ams.cli.output import Format, document, emit, note, printable, write
from ams.core.clock import SystemClock
from ams.core.errors import Damaged, Unusable
from ams.core.settings import Settings, environment

if TYPE_CHECKING:
    from ams.app.backup import Manifest
    from ams.app.maintenance import FolderReport
    from ams.app.moving.exporting import Installation

T = TypeVar("T")

_EVERY_SECONDS = 5.0
"""How often progress is reported."""

_IN_CLEAR = "Every token stands in it in clear: guard it, and remove it afterwards."
_LEFT_OUT = (
    "Named tokens are not in it and have to be made anew; an import gives users new tokens. Secrets of issuers, and"
    " those that push signs with, have to be set again."
)

Config = Annotated[str | None, option("TOML file with the settings of the service (or AMS_CONFIG).", metavar="FILE")]


def check(folder: Annotated[str, argument("DIR", "The data folder.")], output: Output = Format.TABLE) -> None:
    """Verify a data folder and say what it holds; changes nothing.

    Ends with 0 when all is as it was written, with 1 when something is damaged or the folder cannot be read.
    """
    need("service")
    from ams.app.maintenance import check_folder

    report = check_folder(folder)
    torn = [str(each) for each in report.log.torn]
    write(output, {**_counts(report), "torn": torn, "problems": report.problems}, _checked(report))
    if report.problems:
        raise typer.Exit(Exit.REFUSED)


def _checked(report: "FolderReport") -> str:
    lines = [f"{name:10} {number:,}" for name, number in _counts(report).items()]
    lines += [f"unfinished {each}; the next start cuts it; no publisher got an answer" for each in report.log.torn]
    lines += [f"damaged    {each}" for each in report.problems]
    lines.append("damage was found" if report.problems else "all is as it was written")
    return "\n".join(map(printable, lines))


def _counts(report: "FolderReport") -> dict[str, int]:
    log = report.log
    return {
        "segments": log.segments,
        "indexes": log.indexes,
        "records": log.records,
        "messages": log.messages,
        "topics": log.topics,
        "bytes": log.bytes,
    }


def backup(
    target: Annotated[str, typer.Argument(metavar="DIR", help="A folder that does not exist yet.")],
    data: DataFolder = DATA_FOLDER,
    without_key: Annotated[bool, option("Leave out token.key, admin.token and server.key.", "--without-key")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Copy a data folder, also while its service runs. DIR shows it as it was when the copy began."""
    need("service")
    from ams.app.backup import take

    made = take(data, target, with_key=not without_key)
    write(output, _summary(target, made), _taken(target, made))


def restore_command(
    source: Annotated[str, typer.Argument(metavar="DIR", help="A backup.")],
    data: Annotated[str, option("The data folder to make: new or empty.", envvar="AMS_DATA")],
    output: Output = Format.TABLE,
) -> None:
    """Make a data folder of a backup. Every byte is compared with what was written, and the folder is checked."""
    need("service")
    from ams.app.backup import restore

    restored = restore(source, data)
    problems = restored.report.problems
    if problems:
        raise Damaged(f"{data} was restored, but what was backed up was damaged already: {'; '.join(problems)}")
    made = restored.manifest
    write(output, _summary(data, made), _restored(data, made))


def _summary(folder: str, made: "Manifest") -> dict[str, object]:
    return {
        "folder": folder,
        "taken": made.taken,
        "files": len(made.files),
        "bytes": made.bytes,
        "token_key": made.token_key,
    }


def _taken(target: str, made: "Manifest") -> str:
    key = (
        "It holds the token key: any person with this file can read all tokens."
        if made.token_key
        else "The token key is not in it: keep the key apart, tokens cannot be read without it."
    )
    return f"{target} shows {made.taken}: {len(made.files)} files, {made.bytes:,} bytes.\n{key}"


def _restored(data: str, made: "Manifest") -> str:
    key = (
        "The token key is in it."
        if made.token_key
        else "The token key is not in it: put token.key there or set AMS_TOKEN_KEY, or the service will not start."
    )
    return f"{data} is as it was at {made.taken}: {len(made.files)} files, {made.bytes:,} bytes, all checked.\n{key}"


def export_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="New file; .gz compresses it, - is stdout.")],
    data: DataFolder = DATA_FOLDER,
    config: Config = None,
    without_secrets: Annotated[
        bool, option("Leave out tokens, named ones too, and secrets of push and issuers.", "--without-secrets")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Write all a stopped service holds into a file: messages, users with their tokens, cursors, counters.

    The file holds every token in clear, for its owner only (mode 0600): any user of the machine who can read it has
    full access.
    """
    need("service")
    from ams.app.moving.files import STANDARD
    from ams.storage.folder import is_ours

    settings = settings_of(data, config)
    if settings.log == "embedded" and not is_ours(settings.data):
        raise Unusable(f"{settings.data} is not a data folder")
    counts = _run(_export(settings, file, with_secrets=not without_secrets))
    remark = _LEFT_OUT if without_secrets else _IN_CLEAR
    _tell(counts, output, f"{file} is whole. {remark}", is_note=file == STANDARD)


def import_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; - is stdin.")],
    data: DataFolder = DATA_FOLDER,
    config: Config = None,
    check_only: Annotated[bool, option("Read and judge the file, and change nothing.", "--check")] = False,
    messages_only: Annotated[
        bool, option("Store its messages only; a later file brings those that came since, and the rest.", "--messages")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Fill a new installation from an export. Nothing is served of it before all of it is there.

    A file is checked whole before anything is changed, what comes on stdin as it comes.

    Broken off, it is to be run again with the same file.
    """
    need("service")
    from ams.app.moving import check
    from ams.app.moving.files import STANDARD

    if check_only:
        _tell(check(file, Progress("checked").tell), output, f"{file} can be imported.")
        return
    settings = settings_of(data, config)
    if file != STANDARD:
        check(file, Progress("checked").tell)
    counts = _run(_import(settings, file, messages_only=messages_only))
    more = "Its messages are there; import a later file, and then start the service."
    _tell(counts, output, more if messages_only else "All of it is there; start the service.")


def _run(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)


async def _export(settings: Settings, file: str, *, with_secrets: bool) -> Mapping[str, int]:
    from ams.app.moving import export

    async with installation(settings) as source:
        return await export(source, file, Progress("exported").tell, with_secrets=with_secrets)


async def _import(settings: Settings, file: str, *, messages_only: bool) -> Mapping[str, int]:
    from ams.app.moving import import_

    async with installation(settings) as target:
        return await import_(target, file, Progress("imported").tell, messages_only=messages_only)


@contextlib.asynccontextmanager
async def installation(settings: Settings) -> AsyncIterator["Installation"]:
    """Open the engines of a stopped service until the block ends. Raises `Unusable` with one line."""
    from ams.app.moving.exporting import Installation
    from ams.app.wiring.engines import open_engines
    from ams.core.supervisor import Supervisor
    from ams.storage.files import Disk

    async with open_engines(settings, SystemClock(), Disk(), _tell_of_waiting, Supervisor()) as engines:
        yield Installation(engines.registry, engines.log, engines.cursors)


def _tell_of_waiting(what: str) -> None:
    if what:
        note(f"ams: waiting for {printable(what)}")


def settings_of(data: str, config: str | None) -> Settings:
    """Return the settings of the service, as `ams serve` would take them here."""
    from ams.core.observing import configure_logs

    configure_logs("warning", "console", "console")  # to stderr: an export may go to stdout
    given = {"data": data} if data != DATA_FOLDER else {}
    return Settings.load(given, environment(), config, lambda line: note(f"ams: {printable(line)}"))


class Progress:
    """Prints from time to time how far the work is."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._next = time.monotonic() + _EVERY_SECONDS

    def tell(self, done: int, expected: int | None) -> None:
        """Say how many messages are done, unless that was said just now."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY_SECONDS
        of = "" if expected is None else f" of {expected:,}"
        note(f"{self._work} {done:,}{of} messages")


def _tell(counts: Mapping[str, int], output: Format, last: str, *, is_note: bool = False) -> None:
    text = "\n".join([*(f"{kind:14} {number:,}" for kind, number in counts.items()), last])
    result = document(dict(counts)) if output is Format.JSON else text
    (note if is_note else emit)(result)


def rotate_key(data: DataFolder = DATA_FOLDER, output: Output = Format.TABLE) -> None:
    """Encrypt the stored tokens with a new key; the service must be stopped, and all tokens stay valid."""
    need("service")
    from ams.app import maintenance

    given = environment()
    own, new = given.get("AMS_TOKEN_KEY", ""), given.get("AMS_NEW_TOKEN_KEY", "")
    registry, password = given.get("AMS_REGISTRY", "sqlite"), given.get("AMS_REGISTRY_PASSWORD", "")
    if registry == "sqlite":
        rotated = _run(maintenance.rotate_key(data, token_key=own, new_token_key=new))
    else:
        rotated = _run(maintenance.rotate_shared_key(registry, password, own, new))
    where = f"The new key is in {rotated.file}." if rotated.file else "Set AMS_TOKEN_KEY to the new key before a start."
    text = f"Encrypted anew: {rotated.tokens:,} tokens; they stay valid.\n{where}"
    write(output, {"tokens": rotated.tokens, "file": rotated.file}, f"{text} Backups taken before need the old key.")
