import re
from pathlib import Path

from ams.access.permissions import OPEN, PERMISSIONS
from ams.access.roles import ROLES, SELF
from tests.access.table import LINES, OWN_LINES, SHORT


def test_every_line_of_the_contracts_table_is_there_in_its_order() -> None:
    assert [line.number for line in LINES] == list(range(1, 65))
    assert list(PERMISSIONS)[:64] == [line.action for line in LINES]
    for line in LINES:
        assert PERMISSIONS[line.action] == (OPEN if line.is_open else line.roles), line.action


def test_the_contract_is_written_down_with_the_same_lines() -> None:
    page = (Path(__file__).parents[2] / "docs" / "contract" / "api.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (\w+:\w+) \| [A-Z]+ \S+ \| (.+) \|$", page, re.MULTILINE)
    named = {action: () if roles.startswith(("open", "any user")) else roles.split() for _, action, roles in rows}

    assert [int(number) for number, _, _ in rows] == [line.number for line in LINES]
    assert {action: {SHORT[role] for role in roles} for action, roles in named.items()} == {
        line.action: line.roles for line in LINES
    }


def test_our_own_actions_come_after_the_contracts() -> None:
    """None is wider than the contract's rows for the same resource: who may not consume may not read a topic."""
    ours = dict(list(PERMISSIONS.items())[64:])

    assert ours == {line.action: line.roles | ({SELF} if line.of_oneself else set()) for line in OWN_LINES}
    assert ours.pop("service:doctor") == PERMISSIONS["ams:metrics"] - {"metrics_viewer"}
    assert ours.pop("push:lease") == {"push_worker"}
    assert ours.pop("push:wait") == {"push_worker"}
    assert ours.pop("subscriptions:pushStatus") == PERMISSIONS["subscriptions:show"]
    assert ours.pop("subscriptions:deadLetter") == {"push_worker"}
    assert all(roles == {"service_admin", SELF} for action, roles in ours.items() if action.startswith("tokens:"))
    ours = {action: roles - {SELF} for action, roles in ours.items()}
    assert all(roles <= {"service_admin", "project_admin", "consumer"} for roles in ours.values())


def test_every_role_the_contract_names_is_valid() -> None:
    assert set(SHORT.values()) == ROLES
