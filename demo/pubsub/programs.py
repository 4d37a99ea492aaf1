"""The programs, each a process of its own: how they are called, and what they find in their environment."""

import os
import sys
from pathlib import Path

from demo.service import Service
from demo.workers import Worker


class Programs:
    """Starts them; what they write is in one folder."""

    def __init__(self, ams: Service, google_file: Path, token_file: Path, folder: Path) -> None:
        self._ams = ams
        self._google_file, self._token_file = google_file, token_file
        self._folder = folder

    def publisher(self, messages: int) -> Worker:
        """Start the publisher, which ends when everything is published."""
        return self._start("publisher", "publisher", self._ams.pubsub, str(messages), may_end=True)

    def subscriber(self, number: int) -> Worker:
        """Start a subscriber."""
        return self._start(f"subscriber-{number}", "subscriber", self._ams.pubsub)

    def reader(self) -> Worker:
        """Start the official library of AMS."""
        return self._start("reader", "reader", self._ams.endpoint, str(self._token_file))

    def _start(self, name: str, module: str, *arguments: str, may_end: bool = False) -> Worker:
        command = (sys.executable, "-m", f"demo.pubsub.{module}", *arguments)
        return Worker(name, command, self._environment(), self._folder, may_end=may_end)

    def _environment(self) -> dict[str, str]:
        """Return what both libraries read: who they are, and whom they trust."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("PUBSUB_")}
        return own | {
            "GOOGLE_APPLICATION_CREDENTIALS": str(self._google_file),
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(self._ams.ca),
            "REQUESTS_CA_BUNDLE": str(self._ams.ca),
            "PYTHONUNBUFFERED": "1",
        }
