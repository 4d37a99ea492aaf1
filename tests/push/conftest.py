import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

Loops = Mapping[str, Callable[[], asyncio.AbstractEventLoop]]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Loops:
    """Test the sender on the service's event loop, and its general behaviour on the other one too."""
    if item.path.name == "test_sender.py":
        return {"uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
