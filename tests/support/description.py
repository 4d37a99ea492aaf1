"""The route table and its description without a service; run as a program, it writes the description into the docs."""

import inspect
from pathlib import Path
from typing import Any

from ams.http.fast import OPERATIONS
from ams.http.openapi import encoded
from ams.http.routes import rows

FILE = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"

NOBODY: Any = None
"""The table is made without asking anybody anything."""
TABLE = rows(**dict.fromkeys(inspect.signature(rows).parameters, NOBODY))


def description() -> bytes:
    return encoded([*OPERATIONS, *(row.operation for row in TABLE)])


if __name__ == "__main__":
    FILE.write_bytes(description())
