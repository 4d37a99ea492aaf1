"""Mapping: from entitlements to roles in projects.

A rule is met by an entitlement of the same group. One that names a role is met by that role only, one that names an
authority by that authority only; what a rule does not name may be anything.
"""

from collections.abc import Iterable, Iterator, Mapping

from ams.core.entitlements import Entitlement, read
from ams.core.issuer import RoleRule


def roles_of(rules: Iterable[RoleRule], entitlements: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """Return the roles in each project that a rule names, also where they are none.

    What is no entitlement by AARC-G069 meets no rule. More entitlements never mean fewer roles.
    """
    met = frozenset(each for text in entitlements for each in _met(text))
    roles: dict[str, set[str]] = {}
    for rule in rules:
        given = roles.setdefault(rule.project, set())
        if read(rule.entitlement) in met:
            given.update(rule.roles)
    return {project: frozenset(given) for project, given in roles.items()}


def telling(rules: Iterable[RoleRule], entitlements: Iterable[str]) -> tuple[str, ...]:
    """Return the entitlements that meet a rule, each once: as much of them as needs to be remembered."""
    wanted = {read(rule.entitlement) for rule in rules}
    return tuple(text for text in dict.fromkeys(entitlements) if any(each in wanted for each in _met(text)))


def _met(text: str) -> Iterator[Entitlement]:
    """Say every form a rule may have that this meets."""
    entitlement = read(text)
    return iter(()) if entitlement is None else entitlement.met()
