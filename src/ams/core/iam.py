"""Bindings of IAM policies. Those without effect here are stored and returned as Google's clients set them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

USER = "user:"


class RoleBinding(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A role and its members, under a condition if there is one."""

    role: str
    members: tuple[str, ...] = ()
    condition: Mapping[str, str] = {}  # `expression`, and so on; empty: none


Bindings = tuple[RoleBinding, ...]


class Policy(NamedTuple):
    """The policy of a resource: users on its access list, and bindings without effect."""

    users: Sequence[str]  # names of users on the access list, in stored order
    others: Bindings  # without effect


def lines(policy: Policy | None) -> tuple[str, ...]:
    """Return `ROLE: MEMBER` for each binding without effect."""
    others = policy.others if policy else ()
    return tuple(
        f"{each.role}: {member}{', under a condition' if each.condition else ''}"
        for each in others
        for member in each.members
    )


def split(bindings: Iterable[RoleBinding], role: str, known: Collection[str]) -> Policy:
    """Split bindings: users of `known` with the role of the access list, and bindings without effect.

    Conditions are not evaluated, so bindings with a condition have no effect.
    """
    users: dict[str, None] = {}
    others: dict[tuple[str, str], tuple[RoleBinding, dict[str, None]]] = {}
    for each in bindings:
        is_list = each.role == role and not each.condition
        listed = [name for name in each.members if is_list and name.startswith(USER) and name[len(USER) :] in known]
        users |= dict.fromkeys(name[len(USER) :] for name in listed)
        if rest := dict.fromkeys(name for name in each.members if name not in listed):
            key = each.role, msgspec.json.encode(each.condition, order="sorted").decode()
            others.setdefault(key, (each, {}))[1].update(rest)
    kept = (msgspec.structs.replace(each, members=tuple(rest)) for each, rest in others.values())
    return Policy(list(users), tuple(kept))
