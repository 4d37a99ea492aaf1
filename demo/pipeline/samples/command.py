"""The command that publishes a made-up day of messages."""

from datetime import UTC, date, datetime
from typing import Annotated

import typer

from ams.cli.arguments import option, pairs
from ams.cli.command import Session, with_options
from ams.cli.exits import Usage
from ams.cli.output import columns
from demo.pipeline.samples.worlds import publish_all, samples


@with_options
def sample(
    session: Session,
    world: Annotated[str, typer.Argument(metavar="WORLD", help="What is made up; see the list in the reference.")],
    seed: Annotated[int, option("The same seed makes the same messages.")] = 1,
    day: Annotated[str | None, option("YYYY-MM-DD; default today, UTC.", metavar="DAY")] = None,
    size: Annotated[list[str] | None, option("How much of what; repeatable.", "--size", metavar="KEY=VALUE")] = None,
) -> None:
    """Publish a made-up day of one of EGI's services, to try jobs on; topics that are not there are made."""
    made = samples(world, seed, _day(day), pairs(size, "--size"))
    counts = publish_all(session.patient.project(session.project), made)
    rows = [(topic, f"{count}") for topic, count in sorted(counts.items())]
    session.show(dict(counts), columns(("TOPIC", "MESSAGES"), rows))


def _day(day: str | None) -> date:
    try:
        return date.fromisoformat(day) if day else datetime.now(UTC).date()
    except ValueError:
        raise Usage(f"--day {day!r} is no day such as 2024-03-05") from None
