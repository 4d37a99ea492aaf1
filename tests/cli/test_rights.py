"""Rights and role rules as text, and access lists."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.cli import rights
from ams.cli.exits import Usage
from ams.client import wire
from ams.core.rights import CONSUME, PUBLISH, checked
from tests.cli.conftest import Ams

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


def test_a_right_says_an_action_and_what_it_is_for() -> None:
    assert rights.right("topics:show=projects/p") == wire.Right(action="topics:show", resource="projects/p")
    assert rights.right("*=*") == wire.Right(action="*", resource="*")


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


NO_TOPICS = ("", "a b", "projects/p/subscriptions/t", "projects/p", "topics/t", "projects/p/topics/")
NO_RIGHTS = ("", "topics:show", "topics:show=", "=projects/p", "show=projects/p", "a:b=topics/t")
NO_RULES = ("", "p", "p=publisher", "p=publisher=", "p==urn:x", "=publisher=urn:x")


@pytest.mark.parametrize(
    ("read", "texts", "reason"),
    [
        (lambda text: rights.shorthands([text], [], "p"), NO_TOPICS, "neither a name nor"),
        (lambda text: rights.shorthands([text], [], None), ("t",), "--project"),
        (rights.right, NO_RIGHTS, "ACTION=RESOURCE"),
        (lambda text: rights.rules([text]), NO_RULES, "PROJECT=ROLE=ENTITLEMENT"),
    ],
    ids=["topics", "a name without a project", "rights", "rules"],
)
def test_what_cannot_be_read_is_refused(read: Callable[[str], object], texts: tuple[str, ...], reason: str) -> None:
    for text in texts:
        with pytest.raises(Usage, match=reason):
            read(text)


@pytest.fixture
def users(ams: Ams, project: str) -> list[str]:
    """Make a topic with a subscription, and two members."""
    names = [f"{project}-a", f"{project}-b"]
    for name in names:
        ams("members", "create", name, "--role", "publisher", "--role", "consumer")
    ams("topics", "create", "jobs")
    ams("subs", "create", "reader", "--topic", "jobs")
    return names


@pytest.mark.parametrize("resource", ["topics/jobs", "subs/reader", "subscriptions/reader"])
def test_an_access_list_is_set_extended_shortened_and_emptied(ams: Ams, users: list[str], resource: str) -> None:
    first, second = users

    assert ams("acl", "set", resource, first).returncode == 0
    assert ams("acl", "add", resource, second, first).stdout.split() == ["USER", first, second]
    assert ams.json("acl", "remove", resource, first) == {"authorized_users": [second]}
    assert ams("acl", "show", resource).stdout.split() == ["USER", second]
    assert ams("acl", "remove", resource, first).returncode == 2
    assert ams("acl", "set", resource).returncode == 2
    assert ams("acl", "set", resource, "--none").returncode == 0
    assert ams("acl", "show", resource).stdout.split() == ["USER"]


@pytest.mark.parametrize(
    "command", [["acl", "set", "topics/jobs"], ["acl", "add", "subs/reader"], ["topics", "set-acl", "jobs"]]
)
def test_who_is_a_user_but_no_member_is_told_so(ams: Ams, users: list[str], project: str, command: list[str]) -> None:
    stranger = f"{project}-stranger"
    ams("users", "create", stranger)

    ran = ams(*command, users[0], stranger)

    assert ran.returncode == 4
    assert ran.stderr.startswith(f"ams: not members of project {project}: {stranger} (")
    assert "do not exist" not in ran.stderr
    assert "ams members add" in ran.stderr
