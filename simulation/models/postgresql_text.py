"""Translates AMS's statements for PostgreSQL to SQLite.

SQLite takes most of them. Parameters, casts, arrays, the time of day, rows given as JSON, and table definitions are
translated. Three statements of the cursors change several tables at once, which SQLite cannot: their changes run one
after the other. A statement in any other form fails by a syntax error of SQLite.
"""

import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import psycopg

Values = dict[str, Any]

_CAST = re.compile(r"::(double precision|timestamp with(out)? time zone|\w+)(\(\d+\))?(\[\])?", re.IGNORECASE)
_UNNEST = re.compile(r"unnest\(([^()]*)\)\s+AS\s+(\w+)\(([^()]*)\)")
_ARRAY = re.compile(r":(\w+)::(\w+)\[\]")
_ANY = re.compile(r"= ANY\(:(\w+)\)")
_NOW = re.compile(
    r"CAST\(extract\(epoch FROM clock_timestamp\(\)\) \* 1000 AS BIGINT\)"
    r"|\(extract\(epoch FROM clock_timestamp\(\)\) \* 1000\)::bigint"
)
_REPLACED = (
    (re.compile(r"--.*$", re.MULTILINE), ""),
    (_NOW, "now_ms()"),
    (re.compile(r"statement_timestamp\(\) < to_timestamp\((.*?)::float8 / 1000\)"), r"now_ms() < \1"),
    (re.compile(r"now\(\) - interval '1 hour'"), "now_ms() - 3600000"),
    (re.compile(r"DEFAULT now\(\)"), "DEFAULT (now_ms())"),
    (re.compile(r"json_array_elements(_text)?\(CAST\((:\w+)(::\w+)? AS json\)\)"), r"json_each(\2)"),
    (re.compile(r"string_agg\("), "group_concat("),
    (re.compile(r"ctid = ANY\(ARRAY\((.*?)\)\)(?= AND)", re.DOTALL), r"rowid IN (\1)"),
    (re.compile(r"old\.ctid"), "old.rowid"),
    (re.compile(r'COLLATE "C"'), ""),
    (re.compile(r"pg_catalog\."), ""),
    (
        re.compile(r"SELECT FROM pg_tables WHERE schemaname = current_schema\(\) AND tablename = "),
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name = ",
    ),
    (re.compile(r"RETURNING c\."), "RETURNING "),
    (re.compile(r"RETURNING lost \+ total\.cursors"), "RETURNING lost + :cursors"),  # as its condition says
    (re.compile(r"\) WITH \(.*?\)\s*;", re.DOTALL), ");"),
    (re.compile(r"\b(\w+) SERIAL NOT NULL"), r"\1 INTEGER PRIMARY KEY AUTOINCREMENT"),
    (re.compile(r"\bbigint\[\]", re.IGNORECASE), "numbers"),
)
_LOCKS = re.compile(r"\bFOR (UPDATE|KEY SHARE)( OF \w+)?")
_WRITES = re.compile(r"\b(INSERT|UPDATE|DELETE|CREATE|DROP|ALTER)\b")
_SERIAL_KEY = re.compile(r",\s*CONSTRAINT \w+ PRIMARY KEY \(\w+\)")
_LEFT_OUT = ("CREATE FUNCTION", "CREATE TRIGGER", "COMMENT ON")  # guards that AMS never triggers, and comments


@dataclass(frozen=True, slots=True)
class Array:
    """Rows given as columns, for `unnest`."""

    name: str  # of the parameter that SQLite gets
    columns: Sequence[tuple[str, str]]  # given parameters and their types

    def rows(self, values: Values) -> str:
        """Return the rows as JSON."""
        columns = [[_item(each, kind) for each in numbers(values[name])] for name, kind in self.columns]
        return json.dumps(list(zip(*columns, strict=True)))


@dataclass(frozen=True, slots=True)
class Translated:
    """A statement for SQLite."""

    text: str
    writes: bool = False
    locks: bool = False  # it reads and locks rows, like a write
    arrays: Sequence[Array] = ()
    lists: Sequence[str] = ()  # list parameters, for `= ANY`
    steps: Callable[[Any, Values], "Steps"] | None = field(default=None, compare=False)

    def values(self, given: Values) -> Values:
        """Return the parameters for SQLite."""
        made = {name: _plain(value) for name, value in given.items()}
        made |= {each.name: each.rows(given) for each in self.arrays}
        return made | {name: json.dumps(list(given[name])) for name in self.lists}


@dataclass(frozen=True, slots=True)
class Steps:
    """Result of a statement that runs as several."""

    rows: list[tuple[Any, ...]]
    count: int


def name_parameters(sql: str, given: Sequence[Any] | Mapping[str, Any] | None) -> tuple[str, Values]:
    """Return a statement with named parameters of SQLite, and their values."""
    if given is None:
        return sql, {}
    if isinstance(given, Mapping):
        return _by_name(sql), dict(given)
    return _by_place(sql), {f"p{place}": value for place, value in enumerate(given)}


@cache
def _by_name(sql: str) -> str:
    return re.sub(r"%\((\w+)\)s", r":\1", sql).replace("%%", "%")


@cache
def _by_place(sql: str) -> str:
    places = iter(range(100))
    return re.sub(r"%s", lambda _: f":p{next(places)}", sql).replace("%%", "%")


@cache
def translate(sql: str) -> tuple[Translated, ...]:
    """Return the statements of a text, for SQLite."""
    for beginning, steps in _IN_STEPS.items():
        if sql.lstrip().startswith(beginning):
            return (Translated(sql, writes=True, steps=steps),)
    if sql.lstrip().startswith(_LEFT_OUT):
        return ()
    arrays: list[Array] = []

    def number_elements(found: re.Match[str]) -> str:
        names = [each.strip() for each in found[3].split(",")]
        columns = ", ".join(f"value ->> {place} AS {name}" for place, name in enumerate(names))
        arrays.append(Array(f"rows_{len(arrays)}", _ARRAY.findall(found[1])))
        return f"(SELECT {columns} FROM json_each(:{arrays[-1].name})) AS {found[2]}"  # noqa: S608 - a constant

    text = _UNNEST.sub(number_elements, sql)
    lists = _ANY.findall(text)
    text = _ANY.sub(r"IN (SELECT value FROM json_each(:\1))", text)
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    if "AUTOINCREMENT" in text:
        text = _SERIAL_KEY.sub("", text)
    text, locks = _LOCKS.subn("", _CAST.sub("", text))
    return tuple(
        Translated(each, bool(_WRITES.search(each)), bool(locks), arrays, lists)
        for each in text.split(";")
        if each.strip()
    )


def numbers(given: Any) -> list[Any]:
    """Read an array: a list, or numbers as PostgreSQL writes them."""
    if isinstance(given, str):
        return [int(each) if re.fullmatch(r"-?\d+", each) else each for each in given[1:-1].split(",") if each]
    return list(given)


def _item(value: Any, kind: str) -> Any:
    if kind == "uuid":
        return str(uuid.UUID(str(value).rjust(32, "0")))
    return value.hex() if isinstance(value, bytes) else value


def _plain(value: Any) -> Any:
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, psycopg.Binary):
        return bytes(value.obj)
    return None if isinstance(value, list | tuple) else value


# Statements that change several tables.


def _create(cursor: Any, values: Values) -> Steps:
    if cursor.execute("SELECT now_ms() < :expires", values).fetchone()[0] == 0:
        return Steps([], 0)
    cursor.execute("DELETE FROM acks WHERE subscription = :subscription", values)
    cursor.execute(
        """
        INSERT INTO cursors (subscription, topic, "offset", generation, handed, lost, version)
        VALUES (:subscription, :topic, :offset, 0, '{}', :lost, :version)
        ON CONFLICT (subscription) DO UPDATE SET
            topic = excluded.topic, "offset" = excluded."offset", generation = 0, handed = '{}',
            lost = excluded.lost, version = excluded.version
        """,
        values,
    )
    return Steps([], 1)


def _drop(cursor: Any, values: Values) -> Steps:
    for (lost,) in cursor.execute("DELETE FROM cursors WHERE subscription = :p0 RETURNING lost", values).fetchall():
        cursor.execute("UPDATE cursor_store SET lost = lost + ?", (lost,))
    return Steps([], 0)


_MOVE = """
UPDATE cursors SET
    "offset" = :offset, generation = :generation, lost = :lost, run = :run, version = :version,
    handed = CASE WHEN generation = :generation THEN handed ELSE '{}' END
WHERE subscription = :subscription AND version = :read AND now_ms() < :expires
"""
_MOVED = {
    "subscription": "subscriptions", "read": "read", "offset": "offsets", "generation": "generations", "lost": "lost",
    "run": "runs", "version": "versions", "clears": "clears", "number": "numbers", "entry": "entries",
}  # fmt: skip


def _write_standings(cursor: Any, values: Values) -> Steps:
    won = []
    for each in zip(*(numbers(values[name]) for name in _MOVED.values()), strict=True):
        row = dict(zip(_MOVED, each, strict=True)) | {"expires": values["expires"]}
        if cursor.execute(_MOVE, row).rowcount == 0:
            continue
        if row["clears"]:
            cursor.execute("DELETE FROM acks WHERE subscription = :subscription", row)
        if row["entry"] is not None:
            cursor.execute(
                "INSERT INTO acks (subscription, number, entry) VALUES (:subscription, :number, :entry)", row
            )
        won.append((row["subscription"], cursor.execute("SELECT now_ms()").fetchone()[0]))
    return Steps(won, len(won))


_IN_STEPS: Mapping[str, Callable[[Any, Values], Steps]] = {
    "WITH forgotten AS": _create,
    "WITH dropped AS": _drop,
    "WITH moved AS": _write_standings,
}
