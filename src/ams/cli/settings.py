"""`ams settings`: what can be set on the service, and how."""

from typing import Annotated

import typer

from ams.cli.output import Format, columns, document, emit
from ams.settings import Settings, flag, shown


def settings(
    output: Annotated[Format, typer.Option("--output", "-o", help="For people or for programs.")] = Format.TABLE,
) -> None:
    """List the settings of the service: name, environment variable, default, meaning."""
    rows = [(name, flag(name), variable, default, text) for name, variable, default, text in shown(Settings())]
    if output is Format.JSON:
        keys = ("name", "flag", "variable", "default", "help")
        emit(document([dict(zip(keys, row, strict=True)) for row in rows]))
    else:
        emit(columns(("SETTING", "VARIABLE", "DEFAULT", "MEANING"), [(row[0], *row[2:]) for row in rows]))
