"""Mapping: which roles entitlements mean."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.core.issuer import RoleRule
from ams.identity.mapping import roles_of, telling

VO = "urn:mace:egi.eu:group:vo"


@pytest.mark.parametrize(
    ("rule", "value", "is_met"),
    [
        (VO, VO, True),
        (VO, f"{VO}:role=member", True),
        (VO, f"{VO}#aai.egi.eu", True),
        (VO, f"{VO}:role=member#aai.egi.eu", True),
        (VO, VO.replace("urn:mace:egi.eu", "URN:MACE:EGI.EU"), True),
        (f"{VO}:role=member", f"{VO}:role=member#aai.egi.eu", True),
        (f"{VO}:role=member", VO, False),
        (f"{VO}:role=member", f"{VO}:role=manager", False),
        (f"{VO}#aai.egi.eu", f"{VO}:role=member#aai.egi.eu", True),
        (f"{VO}#aai.egi.eu", VO, False),
        (f"{VO}#aai.egi.eu", f"{VO}#other.example", False),
        (VO, f"{VO}:sub", False),
        (f"{VO}:sub", VO, False),
        (f"{VO}:role=member", f"{VO}:sub:role=member", False),
        (VO, "urn:mace:other.example:group:vo", False),
        (VO, f"{VO}x", False),
        (VO, "no entitlement", False),
        (VO, "", False),
        ("no entitlement", "no entitlement", False),
    ],
)
def test_a_rule_is_met_by_its_group_and_by_what_else_it_names(rule: str, value: str, is_met: bool) -> None:
    roles = roles_of([RoleRule(rule, "P", ("publisher",))], [value])

    assert roles == {"P": frozenset({"publisher"} if is_met else ())}


def test_roles_of_several_rules_add_up_and_projects_without_any_are_named() -> None:
    rules = [
        RoleRule(f"{VO}:role=writer", "P", ("publisher",)),
        RoleRule(VO, "P", ("consumer",)),
        RoleRule(f"{VO}:role=boss", "Q", ("project_admin",)),
    ]

    assert roles_of(rules, [f"{VO}:role=writer"]) == {"P": {"publisher", "consumer"}, "Q": frozenset()}
    assert roles_of(rules, []) == {"P": frozenset(), "Q": frozenset()}
    assert roles_of([], [VO]) == {}


PARTS = st.lists(st.sampled_from(["a", "b", "A"]), min_size=1, max_size=3).map(":".join)
ENTITLEMENTS = st.builds(
    "urn:mace:egi.eu:group:{}{}{}".format,
    PARTS,
    st.sampled_from(["", ":role=r", ":role=s"]),
    st.sampled_from(["", "#x", "#y"]),
)
RULES = st.builds(RoleRule, ENTITLEMENTS, st.sampled_from("PQ"), st.sampled_from([("publisher",), ("consumer",)]))


@settings(max_examples=60)
@given(st.lists(RULES, max_size=6), st.lists(ENTITLEMENTS, max_size=6), st.lists(ENTITLEMENTS, max_size=6))
def test_more_entitlements_never_mean_fewer_roles(
    rules: Sequence[RoleRule], some: Sequence[str], more: Sequence[str]
) -> None:
    fewer, all_of_them = roles_of(rules, some), roles_of(rules, [*more, *some])

    assert fewer.keys() == all_of_them.keys() == {rule.project for rule in rules}
    assert all(fewer[project] <= all_of_them[project] for project in fewer)


@settings(max_examples=60)
@given(st.lists(RULES, max_size=6), st.lists(ENTITLEMENTS | st.just("no entitlement"), max_size=6))
def test_entitlements_that_meet_no_rule_tell_nothing(rules: Sequence[RoleRule], entitlements: Sequence[str]) -> None:
    told = telling(rules, entitlements)

    assert roles_of(rules, told) == roles_of(rules, entitlements)
    assert all(any(roles_of(rules, [text]).values()) for text in told)
    assert len(set(told)) == len(told)


def test_five_hundred_entitlements_meet_what_the_last_of_them_says() -> None:
    rules = [RoleRule(f"{VO}:{number}", f"P{number}", ("consumer",)) for number in range(100)]

    roles = roles_of(rules, [f"{VO}:{number}:role=member" for number in range(99, 599)])

    assert [project for project, given in roles.items() if given] == ["P99"]
