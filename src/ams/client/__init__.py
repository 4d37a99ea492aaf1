"""Client library for AMS over HTTP; imports nothing of the service.

    with Client("https://localhost:8080", token, ca="ams-data/ca.pem") as client:
        project = client.project("demo")
        project.topic("jobs").publish([Message(b"hello")])
        for message in project.subscription("worker").messages():
            print(message.data)

`Client` and `AsyncClient` do what `plans` says; the first is written from the second. `wire` says what is asked and how
answers read, as pure values, and covers the whole API through `Client.call`; `errors` is what may come back instead of
an answer.
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
        """Load the asyncio client lazily: the command line starts faster without it."""
        if name != "AsyncClient":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from ams.client.async_client import AsyncClient

        return AsyncClient
