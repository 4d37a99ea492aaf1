"""Mapping: from entitlements to roles in projects.

A rule is met by an entitlement of the same group. One that names a role is met by that role only, one that names an
authority by that authority only; what a rule does not name may be anything.
"""

from collections.abc import Iterable, Mapping

from ams.identity.entitlements import Entitlement, read
from ams.identity.issuer import RoleRule


def roles_of(rules: Iterable[RoleRule], entitlements: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return the roles in each project that a rule names, also where they are none.

    What is no entitlement by AARC-G069 meets no rule. More entitlements never mean fewer roles.
    """
    met = _met(entitlements)
    roles: dict[str, set[str]] = {}
    for rule in rules:
        given = roles.setdefault(rule.project, set())
        if read(rule.entitlement) in met:
            given.update(rule.roles)
    return {project: frozenset(given) for project, given in roles.items()}


def _met(entitlements: Iterable[str]) -> frozenset[Entitlement]:
    """Return every form a rule may have that one of these meets."""
    had = (read(text) for text in entitlements)
    return frozenset(each for entitlement in had if entitlement is not None for each in entitlement.met())
