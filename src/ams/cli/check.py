"""`ams check`: verify a data folder."""

import json
import sys

import click

from ams.checking import FolderReport, check_folder
from ams.cli.exits import Exit
from ams.errors import AmsError


def check_command() -> click.Command:
    """Return the command."""
    return click.Command(
        "check",
        callback=_check,
        params=[
            click.Argument(["folder"], metavar="DIR"),
            click.Option(["-o", "output"], type=click.Choice(["text", "json"]), default="text", help="How to answer."),
        ],
        help="Verify the data folder DIR and say what it holds; changes nothing. "
        "Ends with 0 when all is as it was written, with 1 when something is damaged or the folder cannot be read.",
    )


def _check(folder: str, output: str) -> None:
    try:
        report = check_folder(folder)
    except AmsError as error:
        print(f"ams: {error.message}", file=sys.stderr)
        sys.exit(Exit.REFUSED)
    print(_as_json(report) if output == "json" else _as_text(report))
    sys.exit(Exit.REFUSED if report.problems else Exit.OK)


def _as_json(report: FolderReport) -> str:
    log = report.log
    torn = [str(each) for each in log.torn]
    return json.dumps(_counts(report) | {"torn": torn, "problems": report.problems})


def _as_text(report: FolderReport) -> str:
    lines = [f"{name:10} {number:,}" for name, number in _counts(report).items()]
    lines += [f"unfinished {each}; the next start cuts it, nobody was told it was stored" for each in report.log.torn]
    lines += [f"damaged    {each}" for each in report.problems]
    lines.append("damage was found" if report.problems else "all is as it was written")
    return "\n".join(lines)


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
