"""What commands that ask the certificate service share: the options of the connection, and names completed from it."""

import contextlib
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ams.cli.arguments import Output
from ams.cli.command import Session, with_session_of
from ams.cli.completing import SECONDS
from ams.cli.output import Format
from ams.client import Client, wire
from ams.client.connection import authn_connection, connection
from ams.client.profiles import Source
from ams.client.wire import Call, authn
from ams.core.settings import environment

ANONYMOUS = "Wrong Credentials (no key was given: --key-file, AMS_AUTHN_KEY, AMS_AUTHN_KEY_FILE or a profile names one)"


@dataclass(frozen=True, slots=True)
class AuthnSession(Session):
    """A session with the certificate service; it has no project, and its token is the management key."""

    def uuid_of(self, user: str) -> str:
        """Ask AMS, where commands like `ams users` find it, for the uuid of a user; raise a `ClientError`."""
        found = connection(Source(), self.profile, environment())
        with Client(found.endpoint, found.token, bearer=found.bearer, ca=found.ca, retry=None) as ams:
            return ams.call(wire.get_user(user)).uuid


def authn_session(
    endpoint: Annotated[
        str | None, typer.Option(help="Certificate service, https://HOST:PORT (AMS_AUTHN_ENDPOINT).")
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Management key; other users here can see it (AMS_AUTHN_KEY).")
    ] = None,
    key_file: Annotated[
        str | None, typer.Option(help="File that holds it, or a service_admin's token (AMS_AUTHN_KEY_FILE).")
    ] = None,
    ca: Annotated[str | None, typer.Option(help="File of CA certificates to trust (AMS_AUTHN_CA).")] = None,
    profile: Annotated[str | None, typer.Option(help="Profile to take the rest from (AMS_PROFILE).")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds an answer may take.")] = 30.0,
    output: Output = Format.TABLE,
) -> AuthnSession:
    """Make a session of the options every command has that asks the certificate service."""
    asked = Source(authn_endpoint=endpoint, authn_key=key, authn_key_file=key_file, authn_ca=ca)
    found = authn_connection(asked, profile, environment())
    client = Client(found.endpoint, found.token, ca=found.ca, timeout=timeout, retry=None)
    return AuthnSession(client, None, output, found.token, found.ca, profile, ANONYMOUS)


def with_authn(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command whose first parameter is such a session the options of the connection instead of it."""
    return with_session_of(authn_session, function)


def service_type_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a service type."""
    return _names(context, incomplete, authn.list_service_types(), lambda found: found.service_types)


def binding_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a binding."""
    return _names(context, incomplete, authn.list_bindings(), lambda found: found.bindings)


def key_names(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a management key."""
    return _names(context, incomplete, authn.list_keys(), lambda found: found.keys)


_CONNECTION = ("endpoint", "key", "key_file", "ca", "profile")


def _names(
    context: typer.Context, incomplete: str, call: Call[Any], items: Callable[[Any], Iterable[Any]]
) -> list[str]:
    # Whatever goes wrong, a shell must not write it into the line its user is typing.
    with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
        given: dict[str, Any] = {name: context.params.get(name) for name in _CONNECTION}
        with authn_session(**given, timeout=SECONDS).client as client:
            return [each.name for each in items(client.call(call)) if each.name.startswith(incomplete)]
    return []


ServiceTypeName = Annotated[
    str,
    typer.Argument(
        metavar="TYPE", help="Name of the service type.", show_default=False, autocompletion=service_type_names
    ),
]
HostName = Annotated[
    str, typer.Argument(metavar="HOST", help="One of the hosts of the service type.", show_default=False)
]
BindingName = Annotated[
    str,
    typer.Argument(metavar="BINDING", help="Name of the binding.", show_default=False, autocompletion=binding_names),
]
KeyName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the management key.", show_default=False, autocompletion=key_names),
]
