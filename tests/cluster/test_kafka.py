import ssl
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaConnectionError

from cluster.certificates import Authority
from cluster.kafka import Brokers, Login, Security

pytestmark = pytest.mark.kafka

LOGIN = Login("ams", "s3cr3t")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Brokers]:
    folder = tmp_path_factory.mktemp("kafka")
    with Brokers(folder, quick=True, ways=["node1"], security=Security(authority, LOGIN)) as brokers:
        yield brokers


def words(authority: Authority, login: Login) -> dict[str, object]:
    return {
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=authority.ca),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
    }


async def test_a_broker_takes_tls_and_a_password_only(brokers: Brokers, authority: Authority) -> None:
    wrong = words(authority, Login("ams", "guessed"))
    for refused in ({}, wrong):
        admin = AIOKafkaAdminClient(bootstrap_servers=brokers.servers, **refused, request_timeout_ms=2000)
        with pytest.raises(KafkaConnectionError):
            await admin.start()
        await admin.close()


async def test_a_message_goes_by_a_way_until_its_link_is_cut(brokers: Brokers, authority: Authority) -> None:
    login = words(authority, LOGIN)
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
