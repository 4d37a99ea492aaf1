"""Calls about registrations: asking to become a user, and deciding (contract 6)."""

from ams.client.wire.call import Call, json_body, nothing, reader, registrations_path
from ams.client.wire.values import Registration, Registrations, User, UserDetails

_registration = reader(Registration)
_registrations = reader(Registrations)
_user = reader(User)


def register(user: str, details: UserDetails | None = None) -> Call[Registration]:
    """Ask that somebody become a user of this name; of `details`, projects and roles do not count."""
    said = details or UserDetails()
    texts = {
        "email": said.email,
        "first_name": said.first_name,
        "last_name": said.last_name,
        "organization": said.organization,
        "description": said.description,
    }
    body = {"name": user} | {name: text for name, text in texts.items() if text}
    return Call("POST", registrations_path(), _registration, json_body(body))


def list_registrations(
    *, status: str = "", name: str = "", email: str = "", organization: str = "", activation_token: str = ""
) -> Call[Registrations]:
    """Ask for registrations, oldest first: those that have all the values given."""
    asked = {
        "status": status,
        "name": name,
        "email": email,
        "organization": organization,
        "activation_token": activation_token,
    }
    query = {field: value for field, value in asked.items() if value}
    return Call("GET", registrations_path(), _registrations, query=query)


def get_registration(uuid: str) -> Call[Registration]:
    """Ask for one registration."""
    return Call("GET", registrations_path(uuid), _registration)


def accept_registration(uuid: str) -> Call[User]:
    """Make the user a pending registration asks for; the answer holds the token."""
    return Call("POST", registrations_path(uuid, "accept"), _user)


def decline_registration(uuid: str, comment: str = "") -> Call[None]:
    """Refuse a pending registration."""
    return Call("POST", registrations_path(uuid, "decline"), nothing, json_body({"comment": comment}))


def delete_registration(uuid: str) -> Call[None]:
    """Forget a registration, decided or not."""
    return Call("DELETE", registrations_path(uuid), nothing)
