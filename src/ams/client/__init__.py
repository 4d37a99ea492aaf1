"""Speaks to an AMS over HTTP, knowing nothing of how a service does its work.

    with Client("https://localhost:8080", token, ca="ams-data/ca.pem") as client:
        project = client.project("demo")
        project.topic("jobs").publish([Message(b"hello")])
        for message in project.subscription("worker").messages():
            print(message.data)

`Client` and `AsyncClient` do what `plans` says over the connections of `transport`; the first is written from the
second. `wire` says what is asked and how answers read, as pure values, and covers the whole API through `Client.call`;
`errors` is what may come back instead of an answer.
"""

from typing import TYPE_CHECKING

from ams.client.client import Client
from ams.client.messages import Message, ReceivedMessage, RetryLater, Worked
from ams.client.plans import Retry

__all__ = ["AsyncClient", "Client", "Message", "ReceivedMessage", "Retry", "RetryLater", "Worked"]

if TYPE_CHECKING:
    from ams.client.async_client import AsyncClient
else:

    def __getattr__(name):
        """Load the client for asyncio when it is asked for: a command line that never does starts faster without."""
        if name != "AsyncClient":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from ams.client.async_client import AsyncClient

        return AsyncClient
