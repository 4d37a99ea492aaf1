"""The role names, and which of them a user may be given where (contract 3.3 and 3.4)."""

from collections.abc import Iterable

from ams.core.errors import InvalidInput

SERVICE_ADMIN = "service_admin"
ADMIN_VIEWER = "admin_viewer"
METRICS_VIEWER = "metrics_viewer"
PUSH_WORKER = "push_worker"
ARGO_API_AUTHN = "argo_api_authn"
REGISTER_ADMIN = "register_admin"
PROJECT_ADMIN = "project_admin"
PUBLISHER = "publisher"
CONSUMER = "consumer"
SELF = "(the user itself)"
"""Stands in the table of permissions for the user whom the path names, with whatever roles. Nobody is given it."""

PROJECT_ROLES = frozenset({PROJECT_ADMIN, PUBLISHER, CONSUMER})
"""All that counts inside a project: a project_admin gives these away, so nothing stronger may be among them (U3)."""

ROLES = PROJECT_ROLES | {SERVICE_ADMIN, ADMIN_VIEWER, METRICS_VIEWER, PUSH_WORKER, ARGO_API_AUTHN, REGISTER_ADMIN}
"""Every name that is valid from the start; each may be a service role."""


def check_project_roles(roles: Iterable[str]) -> None:
    """Raise `InvalidInput` "invalid role: X" at the first name that is no project role."""
    _check(roles, PROJECT_ROLES)


def check_service_roles(roles: Iterable[str], valid: frozenset[str] = ROLES) -> None:
    """Raise `InvalidInput` "invalid role: X" at the first name that is none of the `valid` ones."""
    _check(roles, valid)


def _check(roles: Iterable[str], valid: frozenset[str]) -> None:
    for role in roles:
        if role not in valid:
            raise InvalidInput(f"invalid role: {role}")
