import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run each async test in both event loops: they close files differently."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
