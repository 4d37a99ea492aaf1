"""The manifest of a backup: what it holds, of which moment, written when all the rest is on stable storage."""

import os
from collections.abc import Sequence

import msgspec

from ams.core.clock import Milliseconds
from ams.core.errors import Unusable
from ams.storage.files import Disk, write_whole

NAME = "backup.json"
FORMAT = 1
"""The version of the manifest and of what it means."""


class Entry(msgspec.Struct, frozen=True):
    """A file of a backup."""

    name: str
    """Its path within the folder."""
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup says of itself."""

    format: int
    ams: str
    """Version of the program that took it."""
    layout: str
    """Version of the data folder's layout."""
    registry: str
    """The newest migration its registry has had."""
    taken: str
    """The moment it shows, UTC."""
    taken_ms: Milliseconds
    token_key: bool
    """Whether the key that decrypts the stored tokens is in it."""
    files: Sequence[Entry]

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(each.bytes for each in self.files)


def write(folder: str, manifest: Manifest) -> None:
    """Write a manifest into the folder it is about, durably."""
    write_whole(Disk(), os.path.join(folder, NAME), msgspec.json.format(msgspec.json.encode(manifest), indent=1))


def read(folder: str) -> Manifest:
    """Read a backup's manifest; raise `Unusable` for a folder that is no whole backup, or one of a newer program."""
    try:
        with open(os.path.join(folder, NAME), "rb") as file:
            manifest = msgspec.json.decode(file.read(), type=Manifest)
    except OSError as error:
        raise Unusable(f"{folder} is not a whole backup: {NAME}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise Unusable(f"{folder} is not a whole backup: {NAME} cannot be read ({error})") from error
    if manifest.format != FORMAT:
        raise Unusable(f"{folder} was taken in format {manifest.format}, this program reads {FORMAT}; upgrade it")
    for each in manifest.files:
        _check_name(folder, each.name)
    return manifest


def _check_name(folder: str, name: str) -> None:
    """Raise `Unusable` for a name that would lead out of the folder."""
    if os.path.isabs(name) or os.path.normpath(name) != name or name.split(os.sep)[0] == os.pardir:
        raise Unusable(f"{folder} is not a whole backup: {NAME} names {name!r}")
