"""Which broker leads most topics: the one whose loss is felt."""

import asyncio
from collections import Counter

from aiokafka.admin import AIOKafkaAdminClient


def leading_broker(servers: str) -> int:
    """Return the number of the broker that leads most partitions; raises `LookupError` when there are no topics."""
    leaders = asyncio.run(_leaders(servers))
    if not leaders:
        raise LookupError("there are no topics")
    return leaders.most_common(1)[0][0]


async def _leaders(servers: str) -> Counter[int]:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        topics = await admin.describe_topics()
        return Counter(partition["leader"] for topic in topics for partition in topic["partitions"])
    finally:
        await admin.close()
