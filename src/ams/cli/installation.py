"""`ams check`, `backup`, `restore`, `export`, `import`, `admin rotate-key` and `settings`, for operators.

None of them calls a running service; each loads the engines it needs when it runs.
"""

import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ams.cli.arguments import DATA_FOLDER, DataFolder, Output, argument, option
from ams.cli.exit_codes import Exit, Usage, file_named
from ams.cli.extras import require_extras
from ams.cli.output import Format, columns, document, emit, note, printable, write
from ams.core.clock import SystemClock
from ams.core.errors import Damaged, Unusable
from ams.core.settings import Settings, environment, flag
from ams.core.settings_import import import_configuration

if TYPE_CHECKING:
    from ams.app.backup.files import Manifest
    from ams.app.moving.exporter import Installation

T = TypeVar("T")

settings = typer.Typer(help="List the settings of the service, or import those of the reference.")

_PROGRESS_SECONDS = 5.0  # between two reports of progress
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
    require_extras("service")
    from ams.app.maintenance import check_folder

    report = check_folder(folder)
    log = report.log
    counts = {name: getattr(log, name) for name in ("segments", "indexes", "records", "messages", "topics", "bytes")}
    torn = [str(each) for each in log.torn]
    lines = [f"{name:10} {number:,}" for name, number in counts.items()]
    lines += [f"unfinished {each}; the next start cuts it; no publisher got an answer" for each in torn]
    lines += [f"damaged    {each}" for each in report.problems]
    lines.append("damage was found" if report.problems else "all is as it was written")
    write(output, {**counts, "torn": torn, "problems": report.problems}, "\n".join(map(printable, lines)))
    if report.problems:
        raise typer.Exit(Exit.REFUSED)


def backup(
    target: Annotated[str, argument("DIR", "A folder that does not exist yet.")],
    data: DataFolder = DATA_FOLDER,
    without_key: Annotated[bool, option("Leave out token.key, admin.token and server.key.", "--without-key")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Copy a data folder, also while its service runs. DIR shows it as it was when the copy began."""
    require_extras("service")
    from ams.app.backup.live_copy import take

    made = take(data, target, with_key=not without_key)
    text = f"{target} shows {made.taken}: {len(made.files)} files, {made.bytes:,} bytes.\n"
    if made.token_key:
        text += "It holds the token key: any person with this file can read all tokens."
    else:
        text += "The token key is not in it: keep the key apart, tokens cannot be read without it."
    write(output, _summary(target, made), text)


def restore_command(
    source: Annotated[str, argument("DIR", "A backup.")],
    data: Annotated[str, option("The data folder to make: new or empty.", envvar="AMS_DATA")],
    output: Output = Format.TABLE,
) -> None:
    """Make a data folder of a backup. Every byte is compared with what was written, and the folder is checked."""
    require_extras("service")
    from ams.app.backup.files import restore

    made, report = restore(source, data)
    if problems := report.problems:
        raise Damaged(f"{data} was restored, but what was backed up was damaged already: {'; '.join(problems)}")
    text = f"{data} is as it was at {made.taken}: {len(made.files)} files, {made.bytes:,} bytes, all checked.\n"
    if made.token_key:
        text += "The token key is in it."
    else:
        text += "The token key is not in it: put token.key there or set AMS_TOKEN_KEY, or the service will not start."
    write(output, _summary(data, made), text)


def _summary(folder: str, made: "Manifest") -> dict[str, object]:
    count = len(made.files)
    return {"folder": folder, "taken": made.taken, "files": count, "bytes": made.bytes, "token_key": made.token_key}


def export_command(
    file: Annotated[str, argument("FILE", "New file; .gz compresses it, - is stdout.")],
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
    require_extras("service")
    from ams.app.moving.exporter import export
    from ams.app.moving.files import STANDARD
    from ams.storage.folder import is_ours

    chosen = settings_of(data, config)
    if chosen.log == "embedded" and not is_ours(chosen.data):
        raise Unusable(f"{chosen.data} is not a data folder")

    async def work() -> Mapping[str, int]:
        async with installation(chosen) as source:
            return await export(source, file, progress("exported"), with_secrets=not without_secrets)

    remark = _LEFT_OUT if without_secrets else _IN_CLEAR
    _tell(_run_coroutine(work()), output, f"{file} is whole. {remark}", is_note=file == STANDARD)


def import_command(
    file: Annotated[str, argument("FILE", "An export; - is stdin.")],
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
    require_extras("service")
    from ams.app.moving.files import STANDARD
    from ams.app.moving.importer import check, import_

    if check_only:
        _tell(check(file, progress("checked")), output, f"{file} can be imported.")
        return
    chosen = settings_of(data, config)
    if file != STANDARD:
        check(file, progress("checked"))

    async def work() -> Mapping[str, int]:
        async with installation(chosen) as target:
            return await import_(target, file, progress("imported"), messages_only=messages_only)

    counts = _run_coroutine(work())
    more = "Its messages are there; import a later file, and then start the service."
    _tell(counts, output, more if messages_only else "All of it is there; start the service.")


def _run_coroutine(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(work)


@contextlib.asynccontextmanager
async def installation(settings: Settings) -> AsyncIterator["Installation"]:
    """Open the engines of a stopped service. Raises `Unusable` with one line."""
    from ams.app.moving.exporter import Installation
    from ams.app.wiring.engines import open_engines
    from ams.core.supervisor import Supervisor
    from ams.storage.files import Disk

    def tell_of_waiting(what: str) -> None:
        if what:
            note(f"ams: waiting for {printable(what)}")

    async with open_engines(settings, SystemClock(), Disk(), tell_of_waiting, Supervisor()) as engines:
        yield Installation(engines.registry, engines.log, engines.cursors)


def settings_of(data: str, config: str | None) -> Settings:
    """Return the service's settings, as `ams serve` would read them."""
    from ams.core.telemetry import configure_logs

    configure_logs("warning", "console", "console")  # to stderr: an export may go to stdout
    given = {"data": data} if data != DATA_FOLDER else {}
    return Settings.load(given, environment(), config, lambda line: note(f"ams: {printable(line)}"))


def progress(work: str) -> Callable[[int, int | None], None]:
    """Return a progress callback that prints from time to time."""
    due = time.monotonic() + _PROGRESS_SECONDS

    def tell(done: int, expected: int | None) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _PROGRESS_SECONDS
            of = "" if expected is None else f" of {expected:,}"
            note(f"{work} {done:,}{of} messages")

    return tell


def _tell(counts: Mapping[str, int], output: Format, last: str, *, is_note: bool = False) -> None:
    text = "\n".join([*(f"{kind:14} {number:,}" for kind, number in counts.items()), last])
    result = document(dict(counts)) if output is Format.JSON else text
    (note if is_note else emit)(result)


def rotate_key(data: DataFolder = DATA_FOLDER, output: Output = Format.TABLE) -> None:
    """Encrypt the stored tokens with a new key; the service must be stopped, and all tokens stay valid."""
    require_extras("service")
    from ams.app import maintenance

    given = environment()
    own, new = given.get("AMS_TOKEN_KEY", ""), given.get("AMS_NEW_TOKEN_KEY", "")
    registry, password = given.get("AMS_REGISTRY", "sqlite"), given.get("AMS_REGISTRY_PASSWORD", "")
    if registry == "sqlite":
        rotated = _run_coroutine(maintenance.rotate_key(data, token_key=own, new_token_key=new))
    else:
        rotated = _run_coroutine(maintenance.rotate_shared_key(registry, password, own, new))
    where = f"The new key is in {rotated.file}." if rotated.file else "Set AMS_TOKEN_KEY to the new key before a start."
    text = f"Encrypted anew: {rotated.tokens:,} tokens; they stay valid.\n{where}"
    write(output, {"tokens": rotated.tokens, "file": rotated.file}, f"{text} Backups taken before need the old key.")


@settings.callback(invoke_without_command=True)
def list_settings(
    context: typer.Context,
    config: Annotated[str | None, option("TOML file with settings (or AMS_CONFIG).", metavar="FILE")] = None,
    output: Output = Format.TABLE,
) -> None:
    """List the settings as `ams serve` would take them here: name, environment variable, value, meaning.

    Values come from the environment and the file, as those of `ams serve` do; secrets are not shown.
    """
    if context.invoked_subcommand is not None:
        return
    rows = Settings.load({}, environment(), config, lambda line: note(f"ams: {printable(line)}")).display_rows()
    usual = {name: default for name, _, default, _ in Settings().display_rows()}
    objects = [
        {"name": name, "flag": flag(name), "variable": variable, "value": value, "default": usual[name], "help": text}
        for name, variable, value, text in rows
    ]
    write(output, objects, columns(("SETTING", "VARIABLE", "VALUE", "MEANING"), rows))


@settings.command("import")
def import_settings(
    file: Annotated[str, argument("FILE", "JSON settings of the reference.")],
    output: Annotated[str | None, option("New file to write, for its owner only.", "--output", "-o")] = None,
) -> None:
    """Turn a configuration file of the reference implementation into one of this service, or of the certificate one.

    The TOML goes to stdout or to a new file; what has no counterpart is listed on stderr. It holds the secrets of the
    original.
    """
    from ams.authn.settings import import_authn_settings as authn_settings

    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
        found = authn_settings(text) or import_configuration(text)
    except (OSError, UnicodeDecodeError, Unusable) as error:
        raise Usage(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    if output is None:
        emit(found.toml.rstrip())
    else:
        with file_named(output):  # must be new: an existing file keeps its mode
            created = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with file_named(output), os.fdopen(created, "w", encoding="utf-8") as written:
            written.write(found.toml)
    for line in found.notes:
        note(f"ams: {printable(line)}")
