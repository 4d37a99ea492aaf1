"""The event loops of these tests."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

Loops = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Loops:
    """The sender is tested on the loop that the service runs on, what it has in common with others on the other too."""
    if item.path.name == "test_sender.py":
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
