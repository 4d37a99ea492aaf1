"""`ams check`: verify a data folder."""

from typing import Annotated

import typer

from ams.app.checking import FolderReport, check_folder
from ams.cli.arguments import Output
from ams.cli.exits import Exit
from ams.cli.output import Format, document, emit, printable


def check(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="The data folder.", show_default=False)],
    output: Output = Format.TABLE,
) -> None:
    """Verify a data folder and say what it holds; changes nothing.

    Ends with 0 when all is as it was written, with 1 when something is damaged or the folder cannot be read.
    """
    report = check_folder(folder)
    emit(document(_summary(report)) if output is Format.JSON else _text(report))
    if report.problems:
        raise typer.Exit(Exit.REFUSED)


def _summary(report: FolderReport) -> dict[str, object]:
    return {**_counts(report), "torn": [str(each) for each in report.log.torn], "problems": report.problems}


def _text(report: FolderReport) -> str:
    lines = [f"{name:10} {number:,}" for name, number in _counts(report).items()]
    lines += [f"unfinished {each}; the next start cuts it, nobody was told it was stored" for each in report.log.torn]
    lines += [f"damaged    {each}" for each in report.problems]
    lines.append("damage was found" if report.problems else "all is as it was written")
    return "\n".join(map(printable, lines))


def _counts(report: FolderReport) -> dict[str, int]:
    log = report.log
    return {
        "segments": log.segments,
        "indexes": log.indexes,
        "records": log.records,
        "messages": log.messages,
        "topics": log.topics,
        "bytes": log.bytes,
    }
