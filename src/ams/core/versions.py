"""Versions: a change can be refused when what it changes is not any more as its client read it (RFC 9110, 13.1.1)."""

import hashlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from ams.core.errors import ChangedMeanwhile, InvalidInput

_TAGS = re.compile(r"[ \t]*(?:W/)?\"[!#-~\x80-\xff]*\"[ \t]*")
_WEAK = "W/"


def version_of(state: object) -> str:
    """Return the version of a state: equal states have equal versions, on every node and after a restart."""
    encoded = msgspec.json.encode(state, order="deterministic")
    return hashlib.blake2b(encoded, digest_size=12).hexdigest()


class Precondition(NamedTuple):
    """Which versions of a resource a change is meant for."""

    versions: frozenset[str] | None = None  # None: any
    view: Callable[[Any], object] = lambda state: state  # makes of what is stored what clients are shown

    def seen_by(self, view: Callable[[Any], object]) -> "Precondition":
        """Return the same for a resource of which clients are shown a view."""
        return self._replace(view=view)

    def check(self, read: Callable[[], object]) -> None:
        """Raise `ChangedMeanwhile` when what is stored has another version. Call it in the change's transaction."""
        if self.versions is None:
            return
        state = read()
        if state is not None and version_of(self.view(state)) not in self.versions:
            raise ChangedMeanwhile


ANY_VERSION = Precondition()


def read_if_match(header: str) -> Precondition:
    """Read an `If-Match` header: any version meets `*` and no header, none a weak tag. Raises `InvalidInput`."""
    if not header or header.strip() == "*":
        return ANY_VERSION
    tags = header.split(",")
    if not all(map(_TAGS.fullmatch, tags)):
        raise InvalidInput('If-Match should be * or an ETag as it was answered, such as "5f1e"')
    texts = [tag.strip() for tag in tags]
    return Precondition(frozenset(text.strip('"') for text in texts if not text.startswith(_WEAK)))


def written(version: str) -> str:
    """Write a version as a strong `ETag`."""
    return f'"{version}"'
