"""Finds the broker that leads most topics, whose loss has the largest effect."""

import asyncio
import ssl
from collections import Counter
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient

from local_cluster.kafka import Brokers


def leading_broker(brokers: Brokers) -> int:
    """Return the number of the broker that leads most partitions; raises `LookupError` when there are no topics."""
    leaders = asyncio.run(_leaders(brokers))
    if not leaders:
        raise LookupError("there are no topics")
    return leaders.most_common(1)[0][0]


def client_words(brokers: Brokers) -> dict[str, Any]:
    """Return the arguments of aiokafka's clients for these brokers."""
    if brokers.security is None:
        return {"bootstrap_servers": brokers.servers}
    authority, login = brokers.security
    return {
        "bootstrap_servers": brokers.servers,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=authority.ca),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": login.user,
        "sasl_plain_password": login.password,
    }


async def _leaders(brokers: Brokers) -> Counter[int]:
    admin = AIOKafkaAdminClient(**client_words(brokers))
    await admin.start()
    try:
        topics = await admin.describe_topics()
        return Counter(partition["leader"] for topic in topics for partition in topic["partitions"])
    finally:
        await admin.close()
