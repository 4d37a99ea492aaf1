"""`ams export` and `ams import`: an installation in one file, to move it from one shape to another."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from typing import Annotated

import typer

from ams.app.moving import check, export, import_
from ams.app.moving.exporting import Installation
from ams.app.moving.files import STANDARD
from ams.app.wiring.engines import open_engines
from ams.cli.arguments import DATA_FOLDER, DataFolder, Output
from ams.cli.output import Format, document, emit, note, printable
from ams.core.clock import SystemClock
from ams.core.errors import Unusable
from ams.core.observing import configure_logs
from ams.core.settings import Settings, environment
from ams.storage.files import Disk
from ams.storage.folder import is_ours

_EVERY_SECONDS = 5.0
"""How often progress is reported."""

_IN_CLEAR = "Every token stands in it in clear: guard it, and remove it afterwards."
_LEFT_OUT = (
    "Named tokens are not in it and have to be made anew; an import gives users new tokens. Secrets of issuers, and"
    " those that push signs with, have to be set again."
)

Config = Annotated[
    str | None, typer.Option(metavar="FILE", help="TOML file with the settings of the service (or AMS_CONFIG).")
]


def export_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="New file; .gz compresses it, - is stdout.")],
    data: DataFolder = DATA_FOLDER,
    config: Config = None,
    without_secrets: Annotated[
        bool,
        typer.Option("--without-secrets", help="Leave out tokens, named ones too, and secrets of push and issuers."),
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Write all a stopped service holds into a file: messages, users with their tokens, cursors, counters.

    The file holds every token in clear, for its owner only (mode 0600): whoever can read it can do everything.
    """
    settings = _settings(data, config)
    if settings.log == "embedded" and not is_ours(settings.data):
        raise Unusable(f"{settings.data} is not a data folder")
    counts = asyncio.run(_export(settings, file, with_secrets=not without_secrets))
    remark = _LEFT_OUT if without_secrets else _IN_CLEAR
    _tell(counts, output, f"{file} is whole. {remark}", is_note=file == STANDARD)


def import_command(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; - is stdin.")],
    data: DataFolder = DATA_FOLDER,
    config: Config = None,
    check_only: Annotated[bool, typer.Option("--check", help="Read and judge the file, and change nothing.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Fill a new installation from an export. Nothing is served of it before all of it is there.

    A file is checked whole before anything is changed, what comes on stdin as it comes.

    Broken off, it is to be run again with the same file.
    """
    if check_only:
        _tell(check(file, _Progress("checked").tell), output, f"{file} can be imported.")
        return
    settings = _settings(data, config)
    if file != STANDARD:
        check(file, _Progress("checked").tell)
    counts = asyncio.run(_import(settings, file))
    _tell(counts, output, "All of it is there; start the service.")


async def _export(settings: Settings, file: str, *, with_secrets: bool) -> Mapping[str, int]:
    async with _installation(settings) as source:
        return await export(source, file, _Progress("exported").tell, with_secrets=with_secrets)


async def _import(settings: Settings, file: str) -> Mapping[str, int]:
    async with _installation(settings) as target:
        return await import_(target, file, _Progress("imported").tell)


@contextlib.asynccontextmanager
async def _installation(settings: Settings) -> AsyncIterator[Installation]:
    async with open_engines(settings, SystemClock(), Disk(), _tell_of_waiting) as engines:
        yield Installation(engines.registry, engines.log, engines.cursors)


def _tell_of_waiting(what: str) -> None:
    if what:
        note(f"ams: waiting for {printable(what)}")


def _settings(data: str, config: str | None) -> Settings:
    """Return the settings of the service, as `ams serve` would take them here."""
    configure_logs("warning", "console", "console")  # to stderr: an export may go to stdout
    given = {"data": data} if data != DATA_FOLDER else {}
    return Settings.load(given, environment(), config, lambda line: note(f"ams: {printable(line)}"))


class _Progress:
    """Tells from time to time how far the work is."""

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
