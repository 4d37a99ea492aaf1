from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cluster.certificates import Authority
from cluster.link import Link
from cluster.postgres import Postgres

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A primary and two standbys, TLS only."""
    folder = tmp_path_factory.mktemp("postgres")
    with Postgres(folder, 2, authority=Authority(folder / "ca")) as three:
        yield three


def count(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM t").fetchone()
    assert row is not None
    return int(row[0])


def test_the_password_is_in_the_url_and_not_in_the_address(three: Postgres) -> None:
    assert three.password in three.url()
    assert three.password not in three.address()
    assert "sslmode=verify-full" in three.address()


def test_nobody_comes_in_without_tls(three: Postgres) -> None:
    with pytest.raises(psycopg.OperationalError, match="no encryption"):
        psycopg.connect(three.url().replace("verify-full", "disable"))


def test_a_commit_that_was_answered_outlives_the_primary_and_then_a_standby(three: Postgres) -> None:
    with three.connected() as connection:
        connection.execute("CREATE TABLE t (n int)")
        for n in range(20):
            connection.execute("INSERT INTO t VALUES (%s)", [n])
    first = three.primary
    three.kill(first)
    assert three.promote() != first
    assert count(three.url()) == 20

    three.rejoin(first)
    three.kill(next(n for n in three.numbers if n not in {first, three.primary}))
    with three.connected() as connection:
        connection.execute("INSERT INTO t VALUES (20)")
    assert count(three.url()) == 21


def test_a_server_that_was_killed_has_what_it_answered_when_it_is_back(tmp_path: Path) -> None:
    with Postgres(tmp_path) as postgres:
        with postgres.connected() as connection:
            connection.execute("CREATE TABLE t (n int)")
            connection.execute("INSERT INTO t VALUES (0)")
        postgres.kill(1)
        postgres.restart(1)

        assert count(postgres.url()) == 1
        with (
            Link(postgres.port(1)) as link,
            psycopg.connect(postgres.address(ports=[link.port]), password=postgres.password) as connection,
        ):
            link.cut()
            with pytest.raises(psycopg.OperationalError):
                connection.execute("SELECT 1")
