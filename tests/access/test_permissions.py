import json
import re
from pathlib import Path

import pytest

from ams.access.admission import Admission
from ams.access.permissions import (
    OPEN,
    PERMISSIONS,
    PROJECT_ROLES,
    ROLES,
    SELF,
    RoleTable,
    check_project_roles,
    check_service_roles,
    role_table,
)
from ams.core.errors import InvalidInput, NotAllowed, Unusable
from ams.core.names import ProjectName
from ams.storage.registry.registry import Registry
from tests.access.table import ACTIONS, LINES, OWN_LINES, SHORT, documented, roles_of
from tests.support.administration import SERVICE_TOKEN, make_project, make_user


def test_every_line_of_the_contracts_table_is_there_in_its_order() -> None:
    assert [line.number for line in LINES] == list(range(1, 65))
    assert list(PERMISSIONS)[:64] == [line.action for line in LINES]
    for line in LINES:
        assert PERMISSIONS[line.action] == (OPEN if line.is_open else line.roles), line.action


def test_the_roles_of_the_reference_are_those_of_the_table() -> None:
    shown = {action: roles_of(each.method, documented(each.path)) for action, each in ACTIONS.items()}

    assert shown == {action: PERMISSIONS[action] for action in shown}
    assert {line.action for line in OWN_LINES} == set(list(PERMISSIONS)[64:])


def test_every_role_the_contract_names_is_valid() -> None:
    assert set(SHORT.values()) == ROLES


def test_every_role_may_be_a_service_role() -> None:
    check_service_roles(sorted(ROLES))


def test_a_project_role_is_one_of_three() -> None:
    """HTTP contract 17.3, U3."""
    check_project_roles(["project_admin", "publisher", "consumer"])

    assert {"project_admin", "publisher", "consumer"} == PROJECT_ROLES


@pytest.mark.parametrize("role", sorted(ROLES - PROJECT_ROLES))
def test_no_service_role_can_be_given_in_a_project(role: str) -> None:
    with pytest.raises(InvalidInput, match=f"^invalid role: {role}$"):
        check_project_roles(["consumer", role])


@pytest.mark.parametrize("role", ["", "_admin_", "Publisher", "publisher "])
def test_any_other_name_is_no_role(role: str) -> None:
    with pytest.raises(InvalidInput, match=f"^invalid role: {role}$"):
        check_service_roles([role])


GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "control-access.md"


def written(folder: Path, content: object, name: str = "roles.json") -> RoleTable:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return role_table(str(path))


def test_without_a_file_the_table_is_the_default_one() -> None:
    table = role_table("")

    assert table.permissions == PERMISSIONS
    assert table.roles == ROLES


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ([{"resource": "topics:create", "roles": ["publisher", "gardener"], "_id": {"$oid": "5"}}], "roles.json"),
        ({"topics:create": ["publisher", "gardener"]}, "roles.json"),
        ('"topics:create" = ["publisher", "gardener"]\n', "roles.toml"),
    ],
)
def test_named_actions_are_replaced_and_all_others_stay(tmp_path: Path, content: object, name: str) -> None:
    table = written(tmp_path, content, name)

    assert table.permissions == {**PERMISSIONS, "topics:create": {"publisher", "gardener"}}
    assert list(table.permissions) == list(PERMISSIONS)
    assert table.roles == ROLES | {"gardener"}


def test_a_row_without_roles_closes_the_action(tmp_path: Path) -> None:
    assert written(tmp_path, {"projects:delete": []}).permissions["projects:delete"] == frozenset()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"topics:water": ["publisher"]}, "there is no action 'topics:water'"),
        ([{"roles": ["publisher"]}], "there is no action None"),
        ([{"resource": ["x"], "roles": []}], "there is no action ['x']"),
        ({"version:list": ["publisher"]}, "action 'version:list' is open and has no roles"),
        ({"topics:create": "publisher"}, "the roles of 'topics:create' must be a list of names"),
        ({"topics:create": [1]}, "the roles of 'topics:create' must be a list of names"),
        ([{"resource": "topics:create"}], "the roles of 'topics:create' must be a list of names"),
        ({"topics:create": ["_admin_"]}, "'_admin_' cannot be a role of 'topics:create'"),
        ({"topics:create": [""]}, "'' cannot be a role of 'topics:create'"),
        ({"topics:create": ["a b"]}, "'a b' cannot be a role of 'topics:create'"),
        ([{"resource": "topics:create", "roles": []}] * 2, "action 'topics:create' is there twice"),
        ('{"topics:create": [], "topics:create": []}', "'topics:create' is there twice"),
        (["topics:create"], 'must map actions to lists of roles, or be a list of {"resource": ..., "roles": [...]}'),
        (1, 'must map actions to lists of roles, or be a list of {"resource": ..., "roles": [...]}'),
    ],
)
def test_a_file_with_a_mistake_stops_the_start_with_one_line(tmp_path: Path, content: object, reason: str) -> None:
    with pytest.raises(Unusable) as stopped:
        written(tmp_path, content)

    assert stopped.value.message == f"roles file {tmp_path / 'roles.json'}: {reason}"


@pytest.mark.parametrize(("content", "name"), [("{", "r.json"), ("=", "r.toml"), ("[" * 100_000, "r.json")])
def test_a_file_that_does_not_read_stops_the_start(tmp_path: Path, content: str, name: str) -> None:
    with pytest.raises(Unusable, match=f"^roles file .*{name}: .+$"):
        written(tmp_path, content, name)


@pytest.mark.parametrize("name", ["none.json", "."])
def test_a_file_that_is_none_stops_the_start(tmp_path: Path, name: str) -> None:
    with pytest.raises(Unusable, match="^roles file "):
        role_table(str(tmp_path / name))


async def test_the_table_decides_but_for_the_service_token(registry: Registry, tmp_path: Path) -> None:
    here = ProjectName("P")
    project = await make_project(registry, here)
    publisher = await make_user(registry, "pub", {project.id: ("publisher",)})
    admin = await make_user(registry, "adm", {project.id: ("project_admin",)})
    table = written(tmp_path, {"topics:create": ["publisher"]})
    admission = Admission(registry, service_token=SERVICE_TOKEN, permissions=table.permissions)

    await admission.admit("topics:create", publisher.token, here)
    await admission.admit("topics:create", SERVICE_TOKEN, here)
    with pytest.raises(NotAllowed):
        await admission.admit("topics:create", admin.token, here)
    with pytest.raises(NotAllowed):
        await admission.admit("topics:delete", publisher.token, here)


def test_a_file_may_let_the_user_itself_do_something_but_makes_no_role_of_it(tmp_path: Path) -> None:
    table = written(tmp_path, '"tokens:create" = ["service_admin"]\n"users:show" = ["(the user itself)"]', "roles.toml")

    assert table.permissions["tokens:create"] == {"service_admin"}
    assert table.permissions["users:show"] == {SELF}
    assert SELF not in table.roles


def test_the_guide_names_every_action_and_its_example_works(tmp_path: Path) -> None:
    text = GUIDE.read_text()
    rows = re.findall(r"^\| `(\w+:)` \| (.+) \|$", text, re.MULTILINE)
    [example] = re.findall(r"```toml\n(.+?)```", text, re.DOTALL)

    named = {resource + verb for resource, verbs in rows for verb in verbs.split(", ")}

    assert named == {action for action, roles in PERMISSIONS.items() if roles != OPEN}
    assert written(tmp_path, example, "roles.toml").roles == ROLES | {"auditor"}
