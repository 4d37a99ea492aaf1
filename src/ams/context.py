"""Which request is being answered: set where requests come in, read where log lines are written.

One variable and no more, because it is set for every publish and pull: structlog's own context would cost some of them
ten times as much.
"""

from contextvars import ContextVar

REQUEST: ContextVar[bytes] = ContextVar("request", default=b"")
"""The id of the request, as in its `X-Request-Id`; empty outside of requests. Threads see it when they are given it."""
