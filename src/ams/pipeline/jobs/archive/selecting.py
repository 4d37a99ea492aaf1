"""Options by which jobs say which part of an archive they mean."""

from datetime import datetime

from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.archive.table import Selection


def selection(project: str, topics: tuple[str, ...], first: str, last: str) -> Selection:
    """Return which part of an archive is meant; raise `WrongOption`."""
    return Selection(project, topics, _day("first", first), _day("last", last))


def _day(name: str, text: str) -> str:
    try:
        return datetime.strptime(text, "%Y-%m-%d").date().isoformat() if text else ""  # a day has no zone
    except ValueError:
        raise WrongOption(name, f"{text[:20]!r} is no day such as 2024-03-05") from None
