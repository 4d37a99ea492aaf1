"""Connection options for the certificate service: the options of the connection, and names completed from it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from ams.cli.arguments import Output, argument, names_of, option
from ams.cli.command import PageOptions, Session
from ams.cli.output import Format
from ams.client import Client, wire
from ams.client.connection import SettingsSource, authn_connection, connection
from ams.client.wire import authn
from ams.core.settings import environment

ANONYMOUS = "Wrong Credentials (no key was given: --key-file, AMS_AUTHN_KEY, AMS_AUTHN_KEY_FILE or a profile names one)"


@dataclass(frozen=True, slots=True)
class AuthnSession(Session):
    """A session with the certificate service; it has no project, and its token is the management key."""

    @classmethod
    def maker(cls) -> Callable[..., "AuthnSession"]:
        """Return what makes a session from the options of every command that calls the certificate service."""
        return _authn_session

    def uuid_of(self, user: str) -> str:
        """Ask AMS, where commands like `ams users` find it, for the uuid of a user; raise a `ClientError`."""
        with self._ams() as ams:
            return ams.call(wire.get_user(user)).uuid

    def users(self) -> Mapping[str, str]:
        """Ask AMS for all users; return their uuids by name. Raises a `ClientError`."""
        with self._ams() as ams:
            asking, every = replace(self, client=ams), PageOptions(every=True)
            found = asking.fetch_pages("users", every, lambda page: wire.list_users(**page.query)).users
        return {each.name: each.uuid for each in found}

    def _ams(self) -> Client:
        return connection(SettingsSource(), self.profile, environment()).client()


def _authn_session(
    endpoint: Annotated[str | None, option("Certificate service, https://HOST:PORT (AMS_AUTHN_ENDPOINT).")] = None,
    key: Annotated[str | None, option("Management key; other users here can see it (AMS_AUTHN_KEY).")] = None,
    key_file: Annotated[
        str | None, option("File that holds it, or a service_admin's token (AMS_AUTHN_KEY_FILE).")
    ] = None,
    ca: Annotated[str | None, option("File of CA certificates to trust (AMS_AUTHN_CA).")] = None,
    profile: Annotated[str | None, option("Profile to take the rest from (AMS_PROFILE).")] = None,
    timeout: Annotated[float, option("Seconds an answer may take.", min=0.1)] = 30.0,
    output: Output = Format.TABLE,
) -> AuthnSession:
    asked = SettingsSource(authn_endpoint=endpoint, authn_key=key, authn_key_file=key_file, authn_ca=ca)
    found = authn_connection(asked, profile, environment())
    return AuthnSession(found.client(timeout), found, output, profile, ANONYMOUS)


service_type_names = names_of("service_types", lambda *_: authn.list_service_types(), _authn_session)
binding_names = names_of("bindings", lambda *_: authn.list_bindings(), _authn_session)
key_names = names_of("keys", lambda *_: authn.list_keys(), _authn_session)

ServiceTypeName = Annotated[str, argument("TYPE", "Name of the service type.", service_type_names)]
HostName = Annotated[str, argument("HOST", "One of the hosts of the service type.")]
SERVICE_TYPE = {"service_type": ServiceTypeName}
HOST = {"host": HostName}
BindingName = Annotated[str, argument("BINDING", "Name of the binding.", binding_names)]
BINDING = {"binding": BindingName}
KEY = {"name": Annotated[str, argument("NAME", "Name of the management key.", key_names)]}
