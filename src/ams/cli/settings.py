"""`ams settings`: what can be set on the service, and how; and what the settings of the reference become."""

import os
from typing import Annotated

import typer

from ams.authn.settings_import import imported as of_authn
from ams.cli.arguments import Output, argument, option
from ams.cli.exits import Usage, file_named
from ams.cli.output import Format, columns, emit, note, printable, write
from ams.core.errors import Unusable
from ams.core.settings import Settings, environment, flag
from ams.core.settings_import import Imported, imported

app = typer.Typer(help="List the settings of the service, or import those of the reference.")


@app.callback(invoke_without_command=True)
def settings(
    context: typer.Context,
    config: Annotated[str | None, option("TOML file with settings (or AMS_CONFIG).", metavar="FILE")] = None,
    output: Output = Format.TABLE,
) -> None:
    """List the settings as `ams serve` would take them here: name, environment variable, value, meaning.

    Values come from the environment and the file, as those of `ams serve` do; secrets are not shown.
    """
    if context.invoked_subcommand is not None:
        return
    rows = Settings.load({}, environment(), config, lambda line: note(f"ams: {printable(line)}")).shown()
    usual = {name: default for name, _, default, _ in Settings().shown()}
    objects = [
        {"name": name, "flag": flag(name), "variable": variable, "value": value, "default": usual[name], "help": text}
        for name, variable, value, text in rows
    ]
    write(output, objects, columns(("SETTING", "VARIABLE", "VALUE", "MEANING"), rows))


@app.command("import")
def import_(
    file: Annotated[str, argument("FILE", "JSON settings of the reference.")],
    output: Annotated[str | None, option("New file to write, for its owner only.", "--output", "-o")] = None,
) -> None:
    """Turn a configuration file of the reference implementation into one of this service, or of the certificate one.

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
            text = opened.read()
        return of_authn(text) or imported(text)
    except (OSError, UnicodeDecodeError, Unusable) as error:
        raise Usage(f"{file}: {getattr(error, 'strerror', None) or error}") from error


def _write(output: str, toml: str) -> None:
    """Write a file that was not there: one that others can read would stay so."""
    with file_named(output):
        created = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with file_named(output), os.fdopen(created, "w", encoding="utf-8") as file:
        file.write(toml)
