"""The program `ams` with a log that keeps a copy of each sealed segment as a spare, as if retention had deleted it.

So nearly every segment is written over the records of another, without waiting for retention. It prints a line to
stderr whenever a segment reuses a spare, and whenever pages are written ahead.
"""

import sys
from pathlib import Path
from typing import Any

from ams.cli import main
from ams.service import subscriptions
from ams.storage.files import NEW
from ams.storage.log.embedded.segment import Ahead, Spare, Writer
from ams.storage.log.embedded.upkeep import Upkeep

REUSED, AHEAD = "reused", "ahead"  # what it says of a segment, and of pages
_make, _retain, _reuse, _write_step = Upkeep.__init__, Upkeep.retain, Writer._reuse, Ahead._write_step


def _make_soon(upkeep: Upkeep, *given: Any) -> None:
    _make(upkeep, *given)
    upkeep.rounds.soon()  # a start has dropped all spares


async def _retain_and_reuse(upkeep: Upkeep) -> None:
    await _retain(upkeep)
    newest = {each.kind.code: each for each in upkeep._state.catalog if each.head is not None}
    spares = upkeep._spares
    with spares._lock:
        for code in newest.keys() - {each.code for each in spares._kept}:
            segment = newest[code]
            path = Path(segment.path)
            spare = Spare(code, segment.sequence, str(path.with_suffix(NEW)), segment.length)
            Path(spare.path).write_bytes(path.read_bytes()[: segment.length])
            spares._kept.append(spare)


def _write_word(word: str, made: Any) -> Any:
    if made:
        sys.stderr.write(f"{word}\n")
    return made


def plant() -> None:
    """Patch the program; a parallel subscription may also have a deadline of a second."""
    subscriptions.MIN_ACK_DEADLINE = 1  # type: ignore[attr-defined]
    Upkeep.__init__ = _make_soon  # type: ignore[method-assign,assignment]
    Upkeep.retain = _retain_and_reuse  # type: ignore[method-assign,assignment]
    Writer._reuse = lambda *given: _write_word(REUSED, _reuse(*given))  # type: ignore[method-assign]
    Ahead._write_step = lambda *given: _write_word(AHEAD, _write_step(*given))  # type: ignore[method-assign]


if __name__ == "__main__":
    plant()
    main.main()
