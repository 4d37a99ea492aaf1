"""Certificates of the receivers: a CA that tests trust, and what receivers show that they should not."""

import uuid
from pathlib import Path
from typing import NamedTuple

from tests.support import authorities
from tests.support.authorities import DAY, NO_CA, NOW, key_usage

HERE = ("localhost", "receiver.example", "*.receiver.example", "127.0.0.1", "::1")


class Pair(NamedTuple):
    """Paths of a certificate and its key."""

    chain: str
    key: str


class Authority:
    """A CA of its own, in one folder. No two have the same name, as some tests trust several."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._made = authorities.Authority.make(f"Receivers' {name} {uuid.uuid4()}"[:64], path_length=0)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._made.pem)

    def issue(self, name: str, hosts: tuple[str, ...] = HERE, *, is_expired: bool = False) -> Pair:
        """Make a certificate for some hosts."""
        until = NOW + (-DAY if is_expired else 30 * DAY)
        usage = [NO_CA, key_usage("digital_signature")]
        made = self._made.signs(name, not_after=until, extensions=usage, hosts=hosts)
        return Pair(*made.write(self._folder, name))
