"""Entitlements: group memberships as text, in the form of AARC-G069.

    <NAMESPACE>:group:<GROUP>[:<SUBGROUP>*][:role=<ROLE>][#<AUTHORITY>]

The namespace is a URN's, `urn:NID:DELEGATED[:SUBNAMESPACE*]`; subgroups go from the outer to the inner; a role is one
in the innermost group; an authority says who keeps the group, and the guideline has deprecated it. Two texts mean the
same if they are alike once the namespace is in lower case and percent-encodings are in upper case (RFC 8141, 3.1);
nothing is decoded, and groups, roles and authorities are told apart by case.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

LONGEST = 2000
"""Characters; a longer text is no entitlement."""

_ROLE = "role="
_NID = r"[A-Za-z0-9][A-Za-z0-9-]{0,30}[A-Za-z0-9]"
_CHARACTERS = r"A-Za-z0-9._~!$&'()*+,;=@/-"
_PART = rf"(?:[{_CHARACTERS}]|%[0-9A-Fa-f]{{2}})+"
_URN = re.compile(rf"[uU][rR][nN]:{_NID}(?::{_PART})+")
_AUTHORITY = re.compile(rf"(?:[{_CHARACTERS}:?]|%[0-9A-Fa-f]{{2}})+")
_ENCODED = re.compile("%..")
_FIRST_GROUP_PART = 3
"""Before it are `urn`, the NID and what is delegated at least, which may themselves be `group`."""


class Entitlement(NamedTuple):
    """A membership in a group, in normal form: equal ones are equal."""

    namespace: str
    groups: tuple[str, ...]
    """The group, and its subgroups from the outer to the inner; percent-encoded."""
    role: str | None = None
    """In the innermost group; None: not said."""
    authority: str | None = None
    """None: not said."""

    def met(self) -> Iterator["Entitlement"]:
        """Say what whoever has this has as well: the same without its authority, without its role, without both.

        A member of a subgroup is by that no member of the group around it: the guideline does not say so, issuers list
        each membership by itself, and roles are not to be had by a guess.
        """
        for role in {self.role, None}:
            for authority in {self.authority, None}:
                yield self._replace(role=role, authority=authority)


def read(text: str) -> Entitlement | None:
    """Read an entitlement; None for what is none."""
    name, mark, authority = text.partition("#")
    if len(text) > LONGEST or not _URN.fullmatch(name) or (mark and not _AUTHORITY.fullmatch(authority)):
        return None
    parts = name.split(":")
    if "group" not in parts[_FIRST_GROUP_PART:]:
        return None
    place = parts.index("group", _FIRST_GROUP_PART)
    groups = [_normal(part) for part in parts[place + 1 :]]
    role = groups.pop().removeprefix(_ROLE) if groups and groups[-1].startswith(_ROLE) else None
    if not groups or role == "" or any(group.startswith(_ROLE) for group in groups):
        return None
    return Entitlement(":".join(parts[:place]).lower(), tuple(groups), role, _normal(authority) if mark else None)


def is_entitlement(text: str) -> bool:
    """Whether a text is an entitlement."""
    return read(text) is not None


def _normal(part: str) -> str:
    return _ENCODED.sub(lambda encoded: encoded[0].upper(), part)
