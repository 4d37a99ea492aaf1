"""Resource versions (ETags) and preconditions (`If-Match`, RFC 9110, 13.1.1)."""

import hashlib
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from ams.core.errors import ChangedMeanwhile, refuse_if

_TAGS = re.compile(r"[ \t]*(?:W/)?\"[!#-~\x80-\xff]*\"[ \t]*")


def version_of(state: object) -> str:
    """Return the version of a state: equal for equal states, on every node and after a restart."""
    return hashlib.blake2b(msgspec.json.encode(state, order="deterministic"), digest_size=12).hexdigest()


class Precondition(NamedTuple):
    """Versions of a resource that a change requires."""

    versions: frozenset[str] | None = None  # None: any
    view: Callable[[Any], object] = lambda state: state  # converts the stored state to the one shown to clients

    def seen_by(self, view: Callable[[Any], object]) -> "Precondition":
        """Return the same precondition for a resource that clients see through `view`."""
        return self._replace(view=view)

    def check(self, read: Callable[[], object]) -> None:
        """Raise `ChangedMeanwhile` if the stored state has another version. Call it in the change's transaction."""
        if self.versions is None:
            return
        state = read()
        if state is not None and version_of(self.view(state)) not in self.versions:
            raise ChangedMeanwhile


ANY_VERSION = Precondition()


def read_if_match(header: str) -> Precondition:
    """Parse an `If-Match` header: `*` or none matches any version, a weak tag none. Raises `InvalidInput`."""
    if not header or header.strip() == "*":
        return ANY_VERSION
    tags = header.split(",")
    refuse_if(not all(map(_TAGS.fullmatch, tags)), 'If-Match should be * or an ETag as it was answered, such as "5f1e"')
    texts = [tag.strip() for tag in tags]
    return Precondition(frozenset(text.strip('"') for text in texts if not text.startswith("W/")))
