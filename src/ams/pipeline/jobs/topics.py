"""Topics by pattern: those there are when a run starts, so that later ones are found by the next run."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from ams.pipeline.errors import WrongOption
from ams.pipeline.running import Run

_WILD = "*?["


def matching(run: Run, patterns: Iterable[str], option: str = "topics") -> tuple[str, ...]:
    """Return topic names: a name is taken as it is, and a pattern (`*`, `?`, `[...]`) stands for all that match it.

    Raises `WrongOption` when nothing is left to read.
    """
    patterns = tuple(patterns)
    wild = [pattern for pattern in patterns if any(sign in pattern for sign in _WILD)]
    there = run.topics() if wild else ()
    found = {name for name in there if any(fnmatchcase(name, pattern) for pattern in wild)}
    names = tuple(sorted(found.union(pattern for pattern in patterns if pattern not in wild)))
    if not names:
        raise WrongOption(option, f"the project has no topic like {', '.join(patterns) or 'none at all'}")
    return names
