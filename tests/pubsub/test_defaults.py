"""A service with the settings that it has by default."""

from pathlib import Path

import grpc
import pytest
from google.api_core.exceptions import InvalidArgument

from tests.pubsub.conftest import world_at
from tests.support.service import live_service


def test_a_message_is_as_large_as_the_setting_allows_by_default(tmp_path: Path) -> None:
    with (
        live_service(tmp_path / "data", "--pubsub-port", "0", "--pubsub-emulator") as service,
        grpc.insecure_channel(service.pubsub) as channel,
    ):
        world = world_at(channel, service)
        topic, subscription = world.made()
        assert world.publisher.publish(topic, b"x" * 1_100_000).result(20) == "0"
        with pytest.raises(InvalidArgument, match="Message size is too large"):
            world.publisher.publish(topic, b"x" * 1_200_000).result(20)
        assert [len(each.message.data) for each in world.pulled(subscription)] == [1_100_000]
