"""`ams backup` and `ams restore`: copies of a data folder."""

from typing import Annotated

import typer

from ams.app.backup import Manifest, restore, take
from ams.cli.arguments import DATA_FOLDER, DataFolder, Output
from ams.cli.output import Format, document, emit
from ams.core.errors import Damaged


def backup(
    target: Annotated[str, typer.Argument(metavar="DIR", help="A folder that does not exist yet.")],
    data: DataFolder = DATA_FOLDER,
    without_key: Annotated[
        bool, typer.Option("--without-key", help="Leave out token.key, admin.token and server.key.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Copy a data folder, also while its service runs. DIR shows it as it was when the copy began."""
    made = take(data, target, with_key=not without_key)
    emit(document(_summary(target, made)) if output is Format.JSON else _taken(target, made))


def restore_command(
    source: Annotated[str, typer.Argument(metavar="DIR", help="A backup.")],
    data: Annotated[str, typer.Option(help="The data folder to make: new or empty.", envvar="AMS_DATA")],
    output: Output = Format.TABLE,
) -> None:
    """Make a data folder of a backup. Every byte is compared with what was written, and the folder is checked."""
    restored = restore(source, data)
    problems = restored.report.problems
    if problems:
        raise Damaged(f"{data} was restored, but what was backed up was damaged already: {'; '.join(problems)}")
    made = restored.manifest
    emit(document(_summary(data, made)) if output is Format.JSON else _restored(data, made))


def _summary(folder: str, made: Manifest) -> dict[str, object]:
    return {
        "folder": folder,
        "taken": made.taken,
        "files": len(made.files),
        "bytes": made.bytes,
        "token_key": made.token_key,
    }


def _taken(target: str, made: Manifest) -> str:
    key = (
        "It holds the token key: whoever has it can read all tokens."
        if made.token_key
        else "The token key is not in it: keep the key apart, tokens cannot be read without it."
    )
    return f"{target} shows {made.taken}: {len(made.files)} files, {made.bytes:,} bytes.\n{key}"


def _restored(data: str, made: Manifest) -> str:
    key = (
        "The token key is in it."
        if made.token_key
        else "The token key is not in it: put token.key there or set AMS_TOKEN_KEY, or the service will not start."
    )
    return f"{data} is as it was at {made.taken}: {len(made.files)} files, {made.bytes:,} bytes, all checked.\n{key}"
