"""The description of the API without a service; run as a program, it writes the description into the docs."""

from pathlib import Path

from ams.http.openapi import encode_description
from ams.wire.actions import ACTIONS, HOT

FILE = Path(__file__).parents[2] / "docs" / "reference" / "openapi.json"

TABLE = [each for name, each in ACTIONS.items() if name not in HOT]


def description() -> bytes:
    return encode_description()


if __name__ == "__main__":
    FILE.write_bytes(description())
