from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import BadDocument
from ams.core.yaml_tree import FileLine
from ams.provisioning.declarations import (
    Declared,
    Existing,
    Fields,
    Reference,
    ResourceKey,
    ResourceKind,
    Step,
    StepSign,
)
from ams.provisioning.plan import PlanOptions, plan, same_push

PLACE = FileLine("file.yaml", 7)
CALLER = "caller"

EMPTY: Mapping[ResourceKind, Fields] = {
    ResourceKind.USER: {"email": "", "service_roles": ()},
    ResourceKind.PROJECT: {"description": "", "retention": 0, "quotas": {}},
    ResourceKind.MEMBER: {"roles": ()}, ResourceKind.SCHEMA: {"type": "json", "schema": {}, "attributes": {}},
    ResourceKind.TOPIC: {"schema": "", "retention": 0, "access": ()},
    ResourceKind.SUBSCRIPTION: {
        "topic": "", "ackDeadline": 10, "push": {"type": ""}, "access": (), "retryPolicy": {},
        "messageRetentionDuration": "",
    },
}  # fmt: skip
"""A resource with no declared fields, as it is shown."""

MEMBERS = ("ann", "bob", CALLER)
roles = st.lists(st.sampled_from(["consumer", "publisher"]), unique=True).map(lambda names: tuple(sorted(names)))
access = st.lists(st.sampled_from(MEMBERS), unique=True).map(lambda names: tuple(sorted(names)))
retention = st.sampled_from([0, 3600])
push = st.sampled_from([{}, {"type": "mattermost", "mattermostUrl": "a"}, {"type": "http_endpoint"}])
objects = st.dictionaries(st.sampled_from("xy"), st.integers(0, 1))

FIELDS: Mapping[ResourceKind, Mapping[str, st.SearchStrategy[Any]]] = {
    ResourceKind.USER: {"email": st.sampled_from(["a", "b"]), "service_roles": roles},
    ResourceKind.PROJECT: {"description": st.sampled_from(["a", "b"]), "retention": retention,
                   "quotas": st.sampled_from([{}, {"topics": 1}, {"topics": 0, "schemas": 2}])},
    ResourceKind.MEMBER: {"roles": roles},
    ResourceKind.SCHEMA: {
        "type": st.just("json"), "schema": st.fixed_dictionaries({"x": st.integers(0, 1)}), "attributes": objects,
    },
    ResourceKind.TOPIC: {"schema": st.sampled_from(["", "s"]), "retention": retention, "access": access},
    ResourceKind.SUBSCRIPTION: {
        "ackDeadline": st.integers(0, 2), "push": push, "access": access,
        "retryPolicy": st.sampled_from([{}, {"minimumBackoff": "1s", "maximumBackoff": "2s"}]),
        "messageRetentionDuration": st.sampled_from(["", "600s"]),
    },
}  # fmt: skip
WHOLE = {ResourceKind.MEMBER, ResourceKind.SCHEMA}  # kinds whose fields are always all declared
NAMES = {
    ResourceKind.MEMBER: MEMBERS,
    ResourceKind.SCHEMA: ("s", "t"),
    ResourceKind.TOPIC: ("t", "u"),
    ResourceKind.SUBSCRIPTION: ("t", "u"),
}


@st.composite
def declarations(draw: st.DrawFn) -> Declared:
    fields: dict[ResourceKey, Fields] = {}
    sections: set[tuple[str, ResourceKind]] = set()

    def some(kind: ResourceKind, project: str, name: str) -> None:
        strategies = FIELDS[kind]
        optional = None if kind in WHOLE else strategies
        chosen = draw(st.fixed_dictionaries({}, optional=optional) if optional else st.fixed_dictionaries(strategies))
        subscribed = {"topic": name} if kind is ResourceKind.SUBSCRIPTION else {}
        fields[ResourceKey(kind, project, name)] = {**chosen, **subscribed}

    for user in draw(st.sets(st.sampled_from(MEMBERS))):
        some(ResourceKind.USER, "", user)
    for project in draw(st.sets(st.sampled_from(["p", "q"]))):
        some(ResourceKind.PROJECT, "", project)
        for kind, names in NAMES.items():
            if draw(st.booleans()):
                sections.add((project, kind))
                for name in draw(st.sets(st.sampled_from(names))):
                    some(kind, project, name)
    return Declared(fields, dict.fromkeys(fields, PLACE), (), frozenset(sections))


@st.composite
def services(draw: st.DrawFn) -> Existing:
    keys = [ResourceKey(ResourceKind.USER, "", name) for name in MEMBERS] + [
        ResourceKey(ResourceKind.PROJECT, "", name) for name in "pq"
    ]
    keys += [ResourceKey(kind, project, name) for project in "pq" for kind, names in NAMES.items() for name in names]
    fields: dict[ResourceKey, Fields] = {}
    for key in draw(st.sets(st.sampled_from(keys))):
        subscribed = {"topic": key.name} if key.kind is ResourceKind.SUBSCRIPTION else {}
        fields[key] = {**EMPTY[key.kind], **draw(st.fixed_dictionaries(FIELDS[key.kind])), **subscribed}
    return Existing(fields, CALLER)


def carried_out(steps: list[Step], existing: Existing) -> Existing:
    """Return a service's state after these steps; fails where a service would."""
    fields = dict(existing.fields)
    for step in steps:
        if step.change is StepSign.REMOVE:
            del fields[step.key]
            continue
        assert (step.key in fields) is (step.change is StepSign.ALTER)
        fields[step.key] = {**EMPTY[step.key.kind], **fields.get(step.key, {}), **step.fields}
    return Existing(fields, existing.caller)


@given(declared=declarations(), existing=services(), prune=st.booleans())
def test_a_plan_makes_all_as_declared_and_leaves_nothing(declared: Declared, existing: Existing, prune: bool) -> None:
    after = carried_out(plan(declared, existing, PlanOptions(prune=prune)), existing)

    assert plan(declared, after, PlanOptions(prune=prune)) == []
    for key, wanted in declared.fields.items():
        for name, value in wanted.items():
            found = after.fields[key][name]
            if name == "push":
                assert same_push(value, found)
            elif name == "access":
                assert set(value) <= set(found)
            else:
                assert value == found


@given(declared=declarations(), existing=services())
def test_without_pruning_nothing_is_removed_and_nothing_else_is_touched(declared: Declared, existing: Existing) -> None:
    after = carried_out(plan(declared, existing), existing)

    for key, fields in existing.fields.items():
        assert {**fields, **declared.fields.get(key, {})}.keys() == after.fields[key].keys()
        if key not in declared.fields:
            assert after.fields[key] == fields


@given(declared=declarations(), existing=services())
def test_pruning_is_of_declared_sections_and_never_of_the_caller(declared: Declared, existing: Existing) -> None:
    removed = [step.key for step in plan(declared, existing, PlanOptions(prune=True)) if step.change is StepSign.REMOVE]

    for key in removed:
        assert (key.project, key.kind) in declared.sections
        assert key not in declared.fields
        assert key.name != CALLER or key.kind is not ResourceKind.MEMBER
    left = existing.fields.keys() - set(removed)
    for key in left - declared.fields.keys():
        protected = key.kind is ResourceKind.MEMBER and (key.name == CALLER or existing.fields[key]["roles"] == ())
        assert protected or (key.project, key.kind) not in declared.sections


@given(declared=declarations(), existing=services())
def test_any_part_of_a_plan_can_fail_and_a_second_run_finishes(declared: Declared, existing: Existing) -> None:
    steps = plan(declared, existing, PlanOptions(prune=True))

    for done in range(len(steps)):
        after = carried_out(steps[:done], existing)
        second = plan(declared, after, PlanOptions(prune=True))
        assert plan(declared, carried_out(second, after), PlanOptions(prune=True)) == []


@given(declared=declarations(), existing=services())
def test_what_others_need_is_made_first_and_removed_last(declared: Declared, existing: Existing) -> None:
    order = list(ResourceKind)
    steps = plan(declared, existing, PlanOptions(prune=True))

    made = [order.index(step.key.kind) for step in steps if step.change is not StepSign.REMOVE]
    removed = [order.index(step.key.kind) for step in steps if step.change is StepSign.REMOVE]

    assert made == sorted(made)
    assert removed == sorted(removed, reverse=True)
    assert [step.change is StepSign.REMOVE for step in steps] == [False] * len(made) + [True] * len(removed)


TOPIC = ResourceKey(ResourceKind.TOPIC, "p", "t")
SUBSCRIPTION = ResourceKey(ResourceKind.SUBSCRIPTION, "p", "s")


def declare_fields(fields: Mapping[ResourceKey, Fields], *references: ResourceKey) -> Declared:
    sections = frozenset((key.project, key.kind) for key in fields)
    return Declared(fields, dict.fromkeys(fields, PLACE), [Reference(PLACE, key) for key in references], sections)


def test_a_reference_to_what_exists_is_enough_unless_it_is_pruned() -> None:
    existing = Existing({TOPIC: EMPTY[ResourceKind.TOPIC]})
    declared = declare_fields({SUBSCRIPTION: {"topic": "t"}, ResourceKey(ResourceKind.TOPIC, "p", "other"): {}}, TOPIC)

    assert [step.change for step in plan(declared, existing)] == [StepSign.ADD, StepSign.ADD]
    with pytest.raises(BadDocument, match="neither declared nor there"):
        plan(declared, existing, PlanOptions(prune=True))


SCHEMA = ResourceKey(ResourceKind.SCHEMA, "p", "s")
ORDERED: Fields = {"topic": "t", "type": "ordered", "filter": "", "enableMessageOrdering": False}
PAYLOADS: Fields = {"type": "json", "schema": {"a": 1}, "attributes": {}}
STAYS = "has another {}, which a subscription cannot change; delete it first"


@pytest.mark.parametrize(("declared", "existing", "reason"), [
    (declare_fields({SUBSCRIPTION: {"topic": "t"}}, TOPIC), {}, "topic p/t is neither declared nor there"),
    (declare_fields({SUBSCRIPTION: {"topic": "t", "type": "parallel"}}), {SUBSCRIPTION: ORDERED}, STAYS.format("type")),
    (declare_fields({SUBSCRIPTION: {"topic": "t", "filter": "attributes:a"}}), {SUBSCRIPTION: ORDERED},
     STAYS.format("filter")),
    (declare_fields({SUBSCRIPTION: {"topic": "t", "enableMessageOrdering": True}}), {SUBSCRIPTION: ORDERED},
     STAYS.format("enableMessageOrdering")),
    (declare_fields({SUBSCRIPTION: {"topic": "t"}}),
        {SUBSCRIPTION: {**EMPTY[ResourceKind.SUBSCRIPTION], "topic": "old"}},
     "subscription p/s is on topic old, and a subscription cannot change"),
    (declare_fields({SCHEMA: {"type": "json", "schema": {}, "attributes": {"required": ["a"]}}}), {SCHEMA: PAYLOADS},
     "schema p/s holds a schema of payloads, and the service cannot"),
])  # fmt: skip
def test_the_impossible_is_refused_by_place(
    declared: Declared, existing: Mapping[ResourceKey, Fields], reason: str
) -> None:
    with pytest.raises(BadDocument, match=f"file.yaml:7: .*{reason}"):
        plan(declared, Existing(existing))
