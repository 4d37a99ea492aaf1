"""Servers in this process notice soon that they are to stop."""

import asyncio
from types import ModuleType
from typing import Any

import uvicorn.server

TIMES = 10


class _Quicker(ModuleType):
    """What uvicorn knows as asyncio: its pauses, by which it looks whether it is to stop, are shorter."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def sleep(self, seconds: float) -> Any:
        return asyncio.sleep(seconds / TIMES)


def plant() -> None:
    """Let uvicorn look every hundredth of a second instead of every tenth: hundreds of tests start a service."""
    uvicorn.server.asyncio = _Quicker("asyncio")  # type: ignore[attr-defined]
