"""Calls about users and their tokens (contract 5)."""

from ams.client.wire.call import Call, json_body, nothing, page, reader, segment, users_path
from ams.client.wire.values import User, UserDetails, Users

_user = reader(User)
_users = reader(Users)


def list_users(*, project: str = "", details: bool = False, page_size: int = 0, page_token: str = "") -> Call[Users]:
    """Ask for users, all or those of a project; `details` adds what they may do where."""
    query = page(page_size, page_token)
    if project:
        query["project"] = project
    if details:
        query["details"] = "true"
    return Call("GET", users_path(), _users, query=query)


def get_user(user: str) -> Call[User]:
    """Ask for a user by name."""
    return Call("GET", users_path(user), _user)


def get_user_by_uuid(uuid: str) -> Call[User]:
    """Ask for a user by uuid."""
    return Call("GET", f"/v1/users:byUUID/{segment('uuid', uuid)}", _user)


def get_user_by_token(token: str) -> Call[User]:
    """Ask whose token this is. The token travels in the address, which others may log: prefer `get_profile`."""
    return Call("GET", f"/v1/users:byToken/{segment('token', token)}", _user)


def get_profile() -> Call[User]:
    """Ask who the caller is."""
    return Call("GET", "/v1/users/profile", _user)


def create_user(user: str, details: UserDetails | None = None) -> Call[User]:
    """Make a user; the answer holds the token."""
    return Call("POST", users_path(user), _user, json_body(details or UserDetails()))


def update_user(user: str, details: UserDetails) -> Call[User]:
    """Change what is known of a user."""
    return Call("PUT", users_path(user), _user, json_body(details))


def refresh_token(user: str) -> Call[User]:
    """Give a user a new token, shown in the answer; the old one is dead at once."""
    return Call("POST", users_path(user, "refreshToken"), _user)


def delete_user(user: str) -> Call[None]:
    """Remove a user from the service and from all access lists."""
    return Call("DELETE", users_path(user), nothing)
