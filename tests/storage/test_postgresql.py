"""What all who speak to PostgreSQL share: connecting, time limits, and which errors pass."""

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from ams.storage.postgresql import connect, conninfo, is_passing, keeps_connection, limited, reason


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


async def test_commits_are_waited_for_and_statements_have_a_limit(postgres_url: str) -> None:
    connection = await connect(conninfo(postgres_url))
    async with connection:
        for setting, value in (("synchronous_commit", "on"), ("statement_timeout", "3s")):
            assert await (await connection.execute(f"SHOW {setting}")).fetchone() == (value,)
        assert connection.autocommit


async def test_a_connection_whose_time_is_over_is_ended(postgres_url: str) -> None:
    connection = await connect(conninfo(postgres_url))

    with pytest.raises(psycopg.OperationalError) as ended, limited(connection, 0.1):
        await connection.execute("SELECT pg_sleep(60)")

    assert is_passing(ended.value)
    assert not keeps_connection(ended.value)
    await connection.close()
