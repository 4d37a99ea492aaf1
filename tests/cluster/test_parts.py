"""Brokers and PostgreSQL as clusters on this machine have them: TLS and passwords only, links, kills, standbys."""

import ssl
from pathlib import Path

import psycopg
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaConnectionError

from cluster.certificates import Authority
from cluster.kafka import Brokers, Login, Security
from cluster.link import Link
from cluster.postgres import Postgres

pytestmark = pytest.mark.long

LOGIN = Login("ams", "s3cr3t")


@pytest.mark.kafka
async def test_a_broker_takes_tls_and_a_password_only_also_by_a_way_that_is_held(
    tmp_path: Path, authority: Authority
) -> None:
    login = {
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=authority.ca),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": LOGIN.user,
        "sasl_plain_password": LOGIN.password,
    }
    with Brokers(tmp_path, quick=True, ways=["node1"], security=Security(authority, LOGIN)) as brokers:
        for refused in ({}, login | {"sasl_plain_password": "guessed"}):
            admin = AIOKafkaAdminClient(bootstrap_servers=brokers.servers, **refused, request_timeout_ms=2000)
            with pytest.raises(KafkaConnectionError):
                await admin.start()
            await admin.close()
        admin = AIOKafkaAdminClient(bootstrap_servers=brokers.servers, **login)
        await admin.start()
        await admin.create_topics([NewTopic("t", 1, 1)])
        await admin.close()
        [link] = brokers.links("node1")
        producer = AIOKafkaProducer(bootstrap_servers=brokers.servers_by("node1"), **login)
        await producer.start()
        written = await producer.send_and_wait("t", b"hello")
        link.hold()
        held = await producer.send("t", b"late")
        assert not held.done()
        link.restore()

        assert (written.offset, (await held).offset) == (0, 1)
        await producer.stop()


def count(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM t").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.postgres
def test_a_commit_that_was_answered_outlives_the_primary_and_then_a_standby(tmp_path: Path) -> None:
    with Postgres(tmp_path, 2, authority=Authority(tmp_path / "ca")) as three:
        with pytest.raises(psycopg.OperationalError, match="no encryption"):
            psycopg.connect(three.url().replace("verify-full", "disable"))
        assert three.password not in three.address()
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


@pytest.mark.postgres
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
