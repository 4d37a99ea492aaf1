"""A PostgreSQL server as far as AMS uses one: databases, sessions, transactions, locks, notifications, a failover.

Each database is a SQLite database in WAL mode, each session a connection to it, so a session reads one state while
another writes. Only one session writes at a time, whatever the rows; PostgreSQL allows more concurrency. A serializable
transaction that has read is refused if anything changed meanwhile; PostgreSQL refuses fewer. A statement that waits
raises `Blocked` and is retried.
"""

import hashlib
import itertools
import os
import re
import sqlite3
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import DiagnosticField

from simulation.models.postgresql_text import Translated, name_parameters, translate

Given = Sequence[Any] | Mapping[str, Any] | None
Converter = Callable[[bytes], Any]
_BEGIN = re.compile(r"BEGIN( ISOLATION LEVEL ([A-Z ]+?))?( READ ONLY)?$")
_FALSE, _TRUE = b"0", b"1"
FIRST_NUMBER = 1_000  # of a transaction
OLD_TRANSACTIONS = 10_000  # number of transactions whose outcomes are remembered
DEFAULTS = {
    "statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0",
    "synchronous_commit": "on", "server_encoding": "UTF8", "standard_conforming_strings": "on",
    "transaction isolation level": "read committed", "server_version": "16.0",
}  # fmt: skip
_TABLE_NAMES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"

sqlite3.register_converter("boolean", lambda data: data == _TRUE)
sqlite3.register_converter("uuid", lambda data: uuid.UUID(data.decode()))
sqlite3.register_converter("numbers", lambda data: [int(each) for each in data.decode()[1:-1].split(",") if each])


class Blocked(Exception):
    """The statement waits for another session; retry it in a moment."""


@dataclass(slots=True)
class Result:
    """The answer to a statement."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    columns: Sequence[str] = ()
    count: int = -1


class Database:
    """The tables of one database, and the shared state of its sessions."""

    def __init__(self, server: "Server", name: str) -> None:
        self.server, self.name = server, name
        self.path = os.path.join(server.folder, f"{name}.db")
        self.writer: Session | None = None  # session with uncommitted writes
        self.locks: dict[int, dict[Session, bool]] = {}  # advisory locks: holders, and True if exclusive
        self.rules: dict[str, str] = {}  # names of unique constraints, by table and columns
        with sqlite3.connect(self.path) as made:
            made.execute("PRAGMA journal_mode = WAL")
            self.learn_rules(made.cursor())

    def lock(self, key: int, session: "Session", *, shared: bool) -> bool:
        """Try to take an advisory lock; return success."""
        holders = self.locks.setdefault(key, {})
        others = [alone for holder, alone in holders.items() if holder is not session]
        if any(others) or (others and not shared):
            return False
        holders[session] = holders.get(session, False) or not shared
        return True

    def learn_rules(self, cursor: sqlite3.Cursor) -> None:
        """Read the names of constraints, which SQLite's errors lack."""
        for table, sql in cursor.execute("SELECT tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall():
            unique = re.findall(r"CONSTRAINT (\w+) (?:UNIQUE|PRIMARY KEY) \(([^)]*)\)", sql)
            unique += re.findall(r"CREATE UNIQUE INDEX (\w+) ON \w+ \(([^)]*)\)", sql)
            for name, columns in unique:
                places = ", ".join(f"{table}.{each.strip().strip(chr(34))}" for each in columns.split(","))
                self.rules[places] = name


class Server:
    """A server, or a primary and its standbys: a failover loses no commit."""

    def __init__(self, folder: str, now: Callable[[], int]) -> None:
        """`now`: the server's time of day, in milliseconds."""
        self.folder, self.now = folder, now
        self.is_away = False
        self.sessions: dict[int, Session] = {}
        self._databases: dict[str, Database] = {}
        self._processes = itertools.count(100)
        self._numbers = itertools.count(FIRST_NUMBER)
        self.last_number = 0
        self.ends: dict[int, str] = {}  # outcomes of transactions by number

    def connect(self, database: str) -> "Session":
        """Begin a session. Raises `psycopg.OperationalError` while the server is away."""
        if self.is_away:
            raise errors.ConnectionFailure("connection failed: Connection refused")
        found = self._databases.get(database)
        if found is None:
            found = self._databases[database] = Database(self, database)
        session = Session(found, next(self._processes))
        self.sessions[session.pid] = session
        return session

    def next_number(self) -> int:
        """Return the number of a new transaction."""
        self.last_number = number = next(self._numbers)
        self.ends[number] = "in progress"
        if len(self.ends) > OLD_TRANSACTIONS:
            del self.ends[next(iter(self.ends))]
        return number

    def go_away(self) -> None:
        """End all sessions, and take no new ones."""
        self.is_away = True
        for session in list(self.sessions.values()):
            session.end()

    def come_back(self, *, forgets_numbers: bool = False) -> None:
        """Accept sessions again. After a failover the last transaction numbers may be unknown."""
        self.is_away = False
        if forgets_numbers:
            self.ends.clear()
            self._numbers, self.last_number = itertools.count(FIRST_NUMBER), FIRST_NUMBER - 1


class Session:
    """A server's session. Its calls return at once; they raise `Blocked` to wait."""

    def __init__(self, database: Database, pid: int) -> None:
        self.database, self.server, self.pid = database, database.server, pid
        self.settings = dict(DEFAULTS)
        self.channels: set[str] = set()
        self.heard: list[tuple[str, str]] = []  # notifications to be fetched: channel and payload
        self.on_heard: Callable[[], None] = lambda: None
        self.is_over = False
        self.is_in_transaction = False
        self.used_at = self.server.now()
        self._isolation, self._is_failed = "", False
        self._number: int | None = None
        self._said: list[tuple[str, str]] = []  # notifications of the transaction
        self._before: dict[str, str] | None = None  # settings before the transaction's own
        self._kept_locks: set[int] = set()  # of the session
        self._raised: Exception | None = None  # by a function of a statement
        self._link = sqlite3.connect(
            database.path,
            isolation_level=None,
            check_same_thread=False,
            detect_types=sqlite3.PARSE_DECLTYPES,
            timeout=0,
        )
        self._link.execute("PRAGMA foreign_keys = ON")
        self._link.execute("PRAGMA synchronous = OFF")
        self._link.execute("PRAGMA case_sensitive_like = ON")
        self._add_functions()

    # Calls of the client

    def run(self, sql: str, given: Given = None) -> Result:
        """Run statements, and return the last result. Raises `psycopg.Error`, `Blocked`."""
        if self.is_over:
            raise errors.AdminShutdown("terminating connection due to administrator command")
        if self.is_in_transaction and self._is_idle_for_too_long():
            self.end()
            raise errors.IdleInTransactionSessionTimeout("terminating connection due to idle-in-transaction timeout")
        self.used_at = self.server.now()
        text, values = name_parameters(sql.strip(), given)
        result = Result()
        for each in _statements(text):
            result = self._run_one(each, values)
        return result

    def end(self) -> None:
        """End the session and roll back."""
        if self.is_over:
            return
        self._finish("aborted")
        self.is_over = True
        for holders in self.database.locks.values():
            holders.pop(self, None)
        self._link.close()
        self.server.sessions.pop(self.pid, None)
        self.on_heard()

    # Statements

    def _run_one(self, text: str, values: dict[str, Any]) -> Result:
        begins = _BEGIN.match(text)
        if begins:
            return self._begin(begins[2] or "READ COMMITTED")
        if text in ("COMMIT", "ROLLBACK"):
            is_done = text == "COMMIT" and not self._is_failed
            self._finish("committed" if is_done else "aborted")
            return Result()
        if self._is_failed:
            raise errors.InFailedSqlTransaction("current transaction is aborted")
        try:
            return self._answer(text, values)
        except Blocked:
            self._free_idle()
            raise
        except psycopg.Error:
            self._is_failed = self.is_in_transaction
            raise

    def fail(self) -> None:
        """Note that a waiting statement timed out."""
        self._is_failed = self.is_in_transaction
        if not self.is_in_transaction:
            self._finish("aborted")

    def _answer(self, text: str, values: dict[str, Any]) -> Result:
        word, _, rest = text.partition(" ")
        if word == "SET":
            name, _, value = rest.removeprefix("LOCAL ").partition(" = ")
            self._set_config(name, value, rest.startswith("LOCAL "))
            return Result()
        if word.lower() == "show":
            return Result([(self.settings[rest],)], [rest], 1)
        if word == "LISTEN":
            self.channels.add(rest)
            return Result()
        if "pg_class.relname" in text:
            return self._execute(Translated(_TABLE_NAMES), {})
        result = Result()
        for each in translate(text):
            result = self._execute(each, values)
        return result

    def _execute(self, statement: Translated, values: dict[str, Any]) -> Result:
        """Run one statement, in its own transaction unless one is open."""
        writes = statement.writes or statement.locks
        if writes:
            self._begin_writing()
        elif self.is_in_transaction and self._isolation != "READ COMMITTED" and not self._link.in_transaction:
            self._link.execute("BEGIN")
        cursor = self._link.cursor()
        self._raised = None
        try:
            if statement.steps is not None:
                made = statement.steps(cursor, statement.values(values) | values)
                result = Result(made.rows, (), made.count)
            else:
                cursor.execute(statement.text, statement.values(values))
                rows = cursor.fetchall() if cursor.description else []
                columns = [each[0] for each in cursor.description or ()]
                result = Result(rows, columns, len(rows) if cursor.description else cursor.rowcount)
        except (sqlite3.Error, OverflowError) as error:
            if not self.is_in_transaction:
                self._finish("aborted")
            if self._raised is not None:
                raise self._raised from error
            raise self._error_of(error) from error
        if "CREATE" in statement.text:
            self.database.learn_rules(cursor)
        if not self.is_in_transaction:
            self._finish("committed")
        return result

    def _begin(self, isolation: str) -> Result:
        self.is_in_transaction, self._is_failed, self._isolation = True, False, isolation
        self._before = dict(self.settings)
        return Result()

    def _begin_writing(self) -> None:
        """Become the writer. Raises `Blocked`, `SerializationFailure`."""
        database = self.database
        if database.writer not in (None, self):
            raise Blocked
        if database.writer is self:
            return
        try:
            if self._link.in_transaction:  # it has read: there may be no change since
                self._link.execute("DELETE FROM sqlite_sequence WHERE false")
            else:
                self._link.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise self._error_of(error) from error
        database.writer = self

    def _finish(self, how: str) -> None:
        if self._link.in_transaction:
            self._link.execute("COMMIT" if how == "committed" else "ROLLBACK")
        if self.database.writer is self:
            self.database.writer = None
        if self._number is not None:
            self.server.ends[self._number] = how
        for key, holders in self.database.locks.items():
            if key not in self._kept_locks:
                holders.pop(self, None)
        if self._before is not None:
            self.settings = self._before
        said, self._said = self._said, []
        self._number, self._before = None, None
        self.is_in_transaction = self._is_failed = False
        if how == "committed":
            for channel, payload in said:
                self._notify(channel, payload)

    def _notify(self, channel: str, payload: str) -> None:
        for session in list(self.server.sessions.values()):
            if channel in session.channels and session.database is self.database:
                session.heard.append((channel, payload))
                session.on_heard()

    def _is_idle_for_too_long(self) -> bool:
        limit = int(self.settings["idle_in_transaction_session_timeout"])
        return bool(limit) and self.server.now() - self.used_at > limit

    def _free_idle(self) -> None:
        """End sessions that idle in a transaction for too long and block this one."""
        for session in list(self.server.sessions.values()):
            if session is not self and session.is_in_transaction and session._is_idle_for_too_long():
                session.end()

    def _error_of(self, error: Exception) -> psycopg.Error:
        said, code = str(error), getattr(error, "sqlite_errorcode", None)
        if code == sqlite3.SQLITE_BUSY_SNAPSHOT:
            return errors.SerializationFailure("could not serialize access due to concurrent update")
        if said.startswith("UNIQUE"):
            name = self.database.rules.get(said.partition(": ")[2], "")
            return errors.UniqueViolation(said, info={DiagnosticField.CONSTRAINT_NAME: name.encode()})
        if said.startswith("FOREIGN KEY"):
            return errors.ForeignKeyViolation(said)
        if said.startswith("NOT NULL"):
            return errors.NotNullViolation(said)
        if isinstance(error, OverflowError):
            return errors.NumericValueOutOfRange(said)
        return errors.ProgrammingError(f"the model cannot run this: {said}")

    # Functions of PostgreSQL

    def _add_functions(self) -> None:
        for name, count, function in (
            ("now_ms", 0, self.server.now),
            ("greatest", 2, lambda one, other: max(each for each in (one, other) if each is not None)),
            ("md5", 1, lambda text: text and hashlib.blake2b(text.encode(), digest_size=16).hexdigest()),
            ("version", 0, lambda: "PostgreSQL 16.0"),
            ("current_schema", 0, lambda: "public"),
            ("pg_backend_pid", 0, lambda: self.pid),
            ("current_setting", 1, lambda name: self.settings[name]),
            ("set_config", 3, self._set_config),
            ("pg_notify", 2, lambda channel, payload: self._said.append((channel, payload))),
            ("pg_current_xact_id", 0, self._own_number),
            ("pg_xact_status", 1, self._status),
            ("pg_advisory_xact_lock", 1, lambda key: self._lock(key)),
            ("pg_try_advisory_xact_lock", 1, lambda key: self.database.lock(key, self, shared=False)),
            ("pg_advisory_lock_shared", 1, self._lock_for_long),
        ):
            self._link.create_function(name, count, function)

    def _set_config(self, name: str, value: str, is_local: bool) -> str:
        if is_local and self._before is None:  # the statement is its own transaction
            return value
        self.settings[name] = value
        if not is_local and self._before is not None:
            self._before[name] = value
        return value

    def _own_number(self) -> int:
        if self._number is None:
            self._number = self.server.next_number()
        return self._number

    def _status(self, number: str) -> str | None:
        if int(number) > self.server.last_number:
            self._raised = errors.InvalidParameterValue(f"transaction ID {number} is in the future")
            raise self._raised
        return self.server.ends.get(int(number))

    def _lock(self, key: int, *, shared: bool = False) -> None:
        if not self.database.lock(key, self, shared=shared):
            self._raised = Blocked()
            raise self._raised

    def _lock_for_long(self, key: int) -> None:
        self._lock(key, shared=True)
        self._kept_locks.add(key)


def _statements(text: str) -> list[str]:
    """Split a text that contains `BEGIN`; `translate` splits others."""
    return [each.strip() for each in text.split(";") if each.strip()] if text.startswith("BEGIN") else [text]
