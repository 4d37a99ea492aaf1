"""Rights and role rules as text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.cli import rights
from ams.cli.exits import Usage
from ams.client import wire
from ams.core.rights import CONSUME, PUBLISH, checked

NAMES = st.text("abcXYZ019_-", min_size=1, max_size=5)
ENTITLEMENTS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
RULES = st.builds(
    lambda entitlement, project, roles: wire.RoleRule(entitlement=entitlement, project=project, roles=sorted(roles)),
    ENTITLEMENTS,
    NAMES,
    st.sets(st.sampled_from(["publisher", "consumer"]), min_size=1),
)


def test_a_topic_is_of_the_project_in_use_or_says_its_own() -> None:
    of_project = rights.shorthands(["readings"], [], "garden")
    elsewhere = rights.shorthands(["projects/field/topics/readings"], [], "garden")

    assert [rights.right_text(each) for each in of_project] == [
        "topics:publish=projects/garden/topics/readings",
        "topics:show=projects/garden/topics/readings",
    ]
    assert {each.resource for each in elsewhere} == {"projects/field/topics/readings"}
    assert rights.shorthands(["/projects/field/topics/readings"], [], None) == elsewhere


def test_a_consumer_gets_what_consuming_asks_for() -> None:
    found = rights.shorthands([], ["watering"], "garden")

    assert [each.action for each in found] == list(CONSUME)
    assert {each.resource for each in found} == {"projects/garden/subscriptions/watering"}


def test_the_service_takes_the_shorthands() -> None:
    found = rights.shorthands(["t"], ["s"], "p")

    assert checked([(each.action, each.resource) for each in found], [*PUBLISH, *CONSUME])


@pytest.mark.parametrize(
    "text", ["", "a b", "projects/p/subscriptions/t", "projects/p", "topics/t", "projects/p/topics/"]
)
def test_what_is_no_topic_is_refused(text: str) -> None:
    with pytest.raises(Usage, match="neither a name nor"):
        rights.shorthands([text], [], "p")


def test_a_name_without_a_project_is_refused() -> None:
    with pytest.raises(Usage, match="--project"):
        rights.shorthands(["t"], [], None)


def test_a_right_says_an_action_and_what_it_is_for() -> None:
    assert rights.right("topics:show=projects/p") == wire.Right(action="topics:show", resource="projects/p")
    assert rights.right("*=*") == wire.Right(action="*", resource="*")


@pytest.mark.parametrize("text", ["", "topics:show", "topics:show=", "=projects/p", "show=projects/p", "a:b=topics/t"])
def test_what_is_no_right_is_refused(text: str) -> None:
    with pytest.raises(Usage, match="ACTION=RESOURCE"):
        rights.right(text)


def test_rights_are_shown_by_resource_and_shorthand() -> None:
    given = rights.shorthands(["t"], ["s"], "p")

    assert rights.shown(None) == "all of the user's"
    assert rights.shown(given) == "publish on projects/p/topics/t; consume on projects/p/subscriptions/s"
    assert rights.shown([rights.right("topics:show=projects/p")]) == "topics:show on projects/p"


@given(st.lists(RULES, max_size=4))
@settings(max_examples=30)
def test_role_rules_read_as_they_were_written(rules: list[wire.RoleRule]) -> None:
    texts = rights.rule_texts(rules)

    assert rights.rule_texts(rights.rules(texts)) == texts


def test_rules_are_gathered_by_entitlement_and_project() -> None:
    entitlement = "urn:mace:a.example:group:b:role=member#a.example"

    assert rights.rules([f"p=publisher={entitlement}", f"p=consumer={entitlement}", f"q=consumer={entitlement}"]) == [
        wire.RoleRule(entitlement=entitlement, project="p", roles=["publisher", "consumer"]),
        wire.RoleRule(entitlement=entitlement, project="q", roles=["consumer"]),
    ]


@pytest.mark.parametrize("text", ["", "p", "p=publisher", "p=publisher=", "p==urn:x", "=publisher=urn:x"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(Usage, match="PROJECT=ROLE=ENTITLEMENT"):
        rights.rules([text])
