"""What reading the three shapes of a description has in common."""

from collections.abc import Iterable, Mapping

Vos = Mapping[str, list[str]]
"""The VOs that may use each share."""


def by_share(policies: Iterable[tuple[str, Iterable[str], Iterable[str]]]) -> Vos:
    """Return the VOs of each share.

    They follow from the mapping policies: of each the share, its rules, which name VOs as `VO:biomed` or `vo:biomed`,
    and the user domains, which count where no rule names a VO.
    """
    found: dict[str, set[str]] = {}
    for share, rules, domains in policies:
        ruled = [name for kind, _, name in (rule.partition(":") for rule in rules) if kind.upper() == "VO" and name]
        found.setdefault(share, set()).update(ruled or domains)
    return {share: sorted(vos) for share, vos in found.items()}
