"""`ams settings`: what can be set on the service, and how; and what the settings of the reference become."""

import os
from typing import Annotated

import typer

from ams.cli.arguments import Output
from ams.cli.exits import Usage
from ams.cli.output import Format, columns, document, emit, note, printable
from ams.errors import Unusable
from ams.settings import Settings, flag, shown
from ams.settings_import import Imported, imported

app = typer.Typer(help="List the settings of the service, or import those of the reference.")


@app.callback(invoke_without_command=True)
def settings(context: typer.Context, output: Output = Format.TABLE) -> None:
    """List the settings of the service: name, environment variable, default, meaning."""
    if context.invoked_subcommand is not None:
        return
    rows = [(name, flag(name), variable, default, text) for name, variable, default, text in shown(Settings())]
    if output is Format.JSON:
        keys = ("name", "flag", "variable", "default", "help")
        emit(document([dict(zip(keys, row, strict=True)) for row in rows]))
    else:
        emit(columns(("SETTING", "VARIABLE", "DEFAULT", "MEANING"), [(row[0], *row[2:]) for row in rows]))


@app.command("import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON settings of the reference.", show_default=False)],
    output: Annotated[str | None, typer.Option("--output", "-o", help="New file to write, for its owner only.")] = None,
) -> None:
    """Turn a configuration file of the reference implementation into one of this service.

    The TOML goes to stdout or to a new file; what has no counterpart is listed on stderr. It holds the secrets of the
    original.
    """
    found = _read(file)
    if output is None:
        emit(found.toml.rstrip())
    else:
        _write(output, found.toml)
    for line in found.notes:
        note(f"ams: {printable(line)}")


def _read(file: str) -> Imported:
    try:
        with open(file, encoding="utf-8") as opened:
            return imported(opened.read())
    except (OSError, UnicodeDecodeError, Unusable) as error:
        raise Usage(f"{file}: {getattr(error, 'strerror', None) or error}") from error


def _write(output: str, toml: str) -> None:
    """Write a file that was not there: one that others can read would stay so."""
    try:
        with os.fdopen(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(toml)
    except OSError as error:
        raise Usage(f"{output}: {error.strerror}") from error
