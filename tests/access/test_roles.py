import pytest

from ams.access.roles import PROJECT_ROLES, ROLES, check_project_roles, check_service_roles
from ams.core.errors import InvalidInput


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
