"""Texts PostgreSQL does not take, written so that it does: clients may send a NUL, and SQLite keeps it.

`ESCAPE` (a control character of the same kind) is written as `ESCAPE 1`, NUL as `ESCAPE 0`. Equal texts stay equal and
different ones different, so the database compares and finds them as ever.
"""

from psycopg import Connection
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.types.string import StrDumperUnknown

ESCAPE = "\x1a"
_ESCAPE_BYTE = ESCAPE.encode()


def escaped(text: str) -> str:
    """Write a text as the database keeps it."""
    return text.replace(ESCAPE, ESCAPE + "1").replace("\x00", ESCAPE + "0")


def unescaped(text: str) -> str:
    """Read a text the database kept."""
    return text.replace(ESCAPE + "0", "\x00").replace(ESCAPE + "1", ESCAPE)


class TextDumper(StrDumperUnknown):
    """Writes the texts of statements."""

    def dump(self, obj: str) -> Buffer | None:
        """Write one text."""
        return super().dump(escaped(obj) if "\x00" in obj or ESCAPE in obj else obj)


class TextReader(Loader):
    """Reads the texts of rows."""

    def load(self, data: Buffer) -> str:
        """Read one text."""
        kept = bytes(data)
        return unescaped(kept.decode()) if _ESCAPE_BYTE in kept else kept.decode()


def take_any_text(connection: Connection) -> None:
    """Have a connection take every text."""
    connection.adapters.register_dumper(str, TextDumper)
    for kind in ("text", "varchar"):
        connection.adapters.register_loader(kind, TextReader)
