from ams.access.permissions import OPEN, PERMISSIONS
from ams.access.roles import ROLES
from tests.access.table import LINES, SHORT


def test_every_line_of_the_contracts_table_is_there_in_its_order() -> None:
    assert [line.number for line in LINES] == list(range(1, 65))
    assert list(PERMISSIONS) == [line.action for line in LINES]
    for line in LINES:
        assert PERMISSIONS[line.action] == (OPEN if line.is_open else line.roles), line.action


def test_every_role_the_contract_names_is_valid() -> None:
    assert set(SHORT.values()) == ROLES
