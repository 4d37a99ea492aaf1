"""Shared by all users of PostgreSQL: connections, time limits, and transient errors."""

import asyncio
import contextlib

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from ams.storage.postgresql import (
    Connection,
    ReconnectingConnection,
    connect,
    connect_thread,
    conninfo,
    is_passing,
    keeps_connection,
    limit_time,
    reason,
)

SETTINGS = {
    "synchronous_commit": "on", "statement_timeout": "3s", "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "5s",
}  # fmt: skip


def test_of_several_servers_the_primary_is_looked_for_with_little_patience() -> None:
    made = conninfo_to_dict(conninfo("postgresql://ams@one.example:5432,two.example:5433/ams", "secret"))
    assert (made["host"], made["port"], made["password"]) == ("one.example,two.example", "5432,5433", "secret")
    assert (made["target_session_attrs"], made["connect_timeout"]) == ("read-write", "2")


def test_what_the_url_says_stays() -> None:
    made = conninfo_to_dict(conninfo("postgresql://ams@one.example/ams?connect_timeout=5&sslmode=verify-full"))
    assert (made["connect_timeout"], made["sslmode"]) == ("5", "verify-full")
    assert "password" not in made


def test_a_url_that_cannot_be_read_is_refused_without_repeating_it() -> None:
    with pytest.raises(ValueError, match="not a PostgreSQL URL") as refused:
        conninfo("postgresql://ams:hidden@one.example/ams?colour=red")
    assert "hidden" not in str(refused.value)


def test_a_lost_connection_passes_and_a_broken_rule_does_not() -> None:
    passing = (psycopg.OperationalError("gone"), psycopg.errors.AdminShutdown(), psycopg.errors.DeadlockDetected())
    lasting = (psycopg.errors.UniqueViolation(), psycopg.errors.UndefinedTable(), ValueError(), None)

    assert all(map(is_passing, passing))
    assert not any(map(is_passing, lasting))
    assert [keeps_connection(error) for error in passing] == [False, False, True]


def test_a_reason_is_one_line() -> None:
    assert reason(psycopg.OperationalError("connection failed\nall of them\n")) == "OperationalError: connection failed"
    assert reason(TimeoutError()) == "TimeoutError"


async def test_commits_are_waited_for_and_statements_locks_and_idleness_have_limits(postgres_url: str) -> None:
    asked = "SELECT name, current_setting(name) FROM unnest(%s::text[]) AS name"
    async with await connect(conninfo(postgres_url)) as connection:
        assert dict(await (await connection.execute(asked, (list(SETTINGS),))).fetchall()) == SETTINGS
        assert connection.autocommit
    with contextlib.closing(connect_thread(conninfo(postgres_url))) as of_thread:
        assert dict(of_thread.execute(asked, (list(SETTINGS),)).fetchall()) == SETTINGS
        assert of_thread.autocommit


async def test_a_connection_whose_time_is_over_is_ended(postgres_url: str) -> None:
    connection = await connect(conninfo(postgres_url))

    with pytest.raises(psycopg.OperationalError) as ended, limit_time(connection, 0.1):
        await connection.execute("SELECT pg_sleep(60)")

    assert is_passing(ended.value)
    assert not keeps_connection(ended.value)
    await connection.close()


def test_a_thread_gives_up_a_silent_server(postgres_url: str) -> None:
    connection = connect_thread(conninfo(postgres_url))
    connection.silence = 0.1

    with pytest.raises(psycopg.OperationalError) as ended:
        connection.execute("SELECT pg_sleep(60)")

    assert is_passing(ended.value)
    assert connection.closed


async def test_a_defect_while_connecting_ends_one_call_and_the_next_one_connects(postgres_url: str) -> None:
    greeted: list[Connection] = []

    async def greet(connection: Connection) -> None:
        greeted.append(connection)
        if len(greeted) == 1:
            raise ZeroDivisionError

    async def ask(connection: Connection, _: float) -> Connection:
        await connection.execute("SELECT 1")
        return connection

    reconnecting = ReconnectingConnection(conninfo(postgres_url), greet)
    give_up = asyncio.get_running_loop().time() + 60
    with pytest.raises(ZeroDivisionError):
        await reconnecting.run(ask, give_up)

    assert await reconnecting.run(ask, give_up) is await reconnecting.run(ask, give_up) is greeted[1]

    await reconnecting.close()
    assert [each.closed for each in greeted] == [True, True]
