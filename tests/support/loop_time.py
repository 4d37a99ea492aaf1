import asyncio

import pytest


def pass_loop_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Move the running loop's clock forward: due timers fire in its next iterations."""
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + seconds)
