"""The route table and its description without a service; run as a program, it writes the description into the docs."""

import inspect
from pathlib import Path
from unittest.mock import MagicMock

from ams.app.wiring.assembly import routes
from ams.core.settings import Settings
from ams.http.fast import OPERATIONS
from ams.http.openapi import encoded

FILE = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"

TABLE = routes(Settings(), **{name: MagicMock() for name in list(inspect.signature(routes).parameters)[1:]})
"""The use cases behind it stand on no engines: it is looked at, and nothing is called."""


def description() -> bytes:
    return encoded([*OPERATIONS, *TABLE])


if __name__ == "__main__":
    FILE.write_bytes(description())
