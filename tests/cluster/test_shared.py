import psycopg
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.support.parts import kafka_prefix, kafka_servers, scratch_database, template_database


@pytest.mark.parametrize("attempt", range(2))
async def test_a_topic_can_be_made_and_written(kafka_servers: str, kafka_prefix: str, attempt: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_servers)
    await admin.start()
    await admin.create_topics([NewTopic(f"{kafka_prefix}.t", 1, 1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=kafka_servers, acks="all")
    await producer.start()
    written = await producer.send_and_wait(f"{kafka_prefix}.t", b"hello")
    await producer.stop()

    assert written.offset == 0


@pytest.mark.kafka
def test_prefixes_differ_and_the_broker_stays() -> None:
    assert kafka_prefix() != kafka_prefix()
    assert kafka_servers() == kafka_servers()


@pytest.mark.parametrize("attempt", range(2))
def test_a_database_is_fresh(postgres_url: str, attempt: int) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE t (n int)")


@pytest.mark.postgres
@pytest.mark.parametrize("attempt", range(2))
def test_a_database_has_what_its_template_has(attempt: int) -> None:
    def prepare(url: str) -> None:
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE prepared (n int)")

    with scratch_database(template_database("prepared", prepare)) as url, psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM prepared").fetchone() == (0,)
