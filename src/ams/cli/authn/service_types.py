"""`ams authn service-types` and `auth-methods`: kinds of services, their hosts, and how hosts are asked for users.

Secrets come from files and are never printed.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from ams.cli.arguments import Texts, option
from ams.cli.authn.session import HOST, SERVICE_TYPE, AuthnSession, HostName, ServiceTypeName
from ams.cli.command import Columns, CommandGroup, columns_of, named, table
from ams.cli.exit_codes import Usage
from ams.cli.secret_file import secret_of
from ams.client.wire import Call, authn

app = CommandGroup(
    "ams authn service-types create ams --host ams.example",
    "ams authn service-types update ams --host ams.example --host ams-devel.example",
    "ams authn service-types show ams",
    help="Service types: kinds of services, and the hosts they run on.",
    session=AuthnSession,
)
auth_methods = CommandGroup(
    "ams authn auth-methods create ams ams.example --port 443 --header-file x-api-key=authn.token",
    "ams authn auth-methods update ams ams.example --header-file x-api-key=new.token",
    "ams authn auth-methods list",
    help="Auth methods: how hosts of service types are asked for their users.",
    session=AuthnSession,
)

Hosts = Annotated[Texts, option("A host; may be repeated.", metavar="HOST")]
AuthTypes = Annotated[Texts, option("How one may log in; may be repeated.", metavar="TYPE")]
AuthMethod = Annotated[str | None, option("How hosts are asked for users: headers or api-key.")]
VerifyHost = Annotated[bool | None, option("Whether a client's address must be one of its certificate's names.")]
HeaderFiles = Annotated[Texts, option("A header and the file of its value; may be repeated.", metavar="NAME=FILE")]
AccessKeyFile = Annotated[str | None, option("File of the access key, for service types with api-key.", metavar="FILE")]

_FIELDS: Columns = {
    "service type": "name",
    **named("uuid", "type", "hosts", "auth_types", "auth_method"),
    "client hosts": lambda each: "verified" if each.verify_client_host else "",
    **named("created_on", "updated_on"),
}


_COLUMNS = columns_of(_FIELDS, "service type", "type", "auth method", "auth types", "hosts", "uuid")
app.sends("list", authn.list_service_types, _COLUMNS, "List service types.", items="service_types")
app.sends("show", authn.get_service_type, _FIELDS, "Show one service type.", SERVICE_TYPE)


@app.shows(_FIELDS)
def create(
    session: AuthnSession,
    service_type: ServiceTypeName,
    host: Hosts = None,
    kind: Annotated[str, option("ams, web-api or custom.", "--type")] = "ams",
    auth_method: AuthMethod = "headers",
    auth_type: AuthTypes = None,
    verify_client_host: VerifyHost = None,
) -> Call[authn.ServiceType]:
    """Make a service type; its hosts then need an auth method each."""
    if not host:
        raise Usage("a service type runs somewhere: give --host")
    return authn.create_service_type(
        service_type, host, kind=kind, auth_method=auth_method or "headers", auth_types=auth_type or [authn.X509],
        verify_client_host=bool(verify_client_host),
    )  # fmt: skip


@app.shows(_FIELDS)
def update(
    session: AuthnSession,
    service_type: ServiceTypeName,
    rename: Annotated[str | None, option("New name.", metavar="NAME")] = None,
    host: Hosts = None,
    auth_method: AuthMethod = None,
    auth_type: AuthTypes = None,
    verify_client_host: VerifyHost = None,
) -> Call[authn.ServiceType]:
    """Change a service type; --host and --auth-type replace all of their kind."""
    changes = authn.ServiceTypeFields(
        name=rename, hosts=tuple(host) if host else None, auth_method=auth_method,
        auth_types=tuple(auth_type) if auth_type else None, verify_client_host=verify_client_host,
    )  # fmt: skip
    if changes == authn.ServiceTypeFields():
        raise Usage("say what to change, for example with --host")
    return authn.update_service_type(service_type, changes)


app.sends("delete", authn.delete_service_type, "service type {service_type} deleted",
    "Remove a service type with all its auth methods and bindings.", SERVICE_TYPE)  # fmt: skip


_AUTH_METHOD: Columns = {
    **named("host", "port", "type"),
    "headers": lambda each: sorted(each.headers),
    "uuid": "uuid",
    "service type": "service_uuid",
    **named("created_on", "updated_on"),
}


@auth_methods.does("list")
def list_auth_methods(session: AuthnSession) -> None:
    """List the auth methods of all service types, without their secrets."""
    found = session.call(authn.list_auth_methods())
    names = {each.uuid: each.name for each in session.call(authn.list_service_types()).service_types}
    shown: Columns = {
        "SERVICE TYPE": lambda each: names.get(each.service_uuid, each.service_uuid),
        **columns_of(_AUTH_METHOD, "host", "port", "type", "headers"),
    }
    methods = [authn.without_secrets(each) for each in found.auth_methods]
    session.show(msgspec.structs.replace(found, auth_methods=methods), table(shown, methods))


auth_methods.sends("show", authn.get_auth_method, _AUTH_METHOD,
    "Show how a host is asked, without the secrets.", SERVICE_TYPE | HOST, shown=authn.without_secrets)  # fmt: skip


@auth_methods.shows(_AUTH_METHOD, shown=authn.without_secrets, name="create")
def create_auth_method(
    session: AuthnSession,
    service_type: ServiceTypeName,
    host: HostName,
    port: Annotated[int, option("Port of the service there.", min=1, max=65535)] = 443,
    header_file: HeaderFiles = None,
    access_key_file: AccessKeyFile = None,
) -> Call[authn.AuthMethod]:
    """Say how a host is asked for its users; for AMS the header x-api-key, with the token of a service_admin."""
    headers, access_key = _secrets(header_file, access_key_file)
    if not headers and not access_key:
        raise Usage("give --header-file or --access-key-file, as the service type's auth method requires")
    return authn.create_auth_method(service_type, host, port, headers=headers, access_key=access_key or "")


@auth_methods.shows(_AUTH_METHOD, shown=authn.without_secrets, name="update")
def update_auth_method(
    session: AuthnSession,
    service_type: ServiceTypeName,
    host: HostName,
    port: Annotated[int | None, option("Port of the service there.", min=1, max=65535)] = None,
    header_file: HeaderFiles = None,
    access_key_file: AccessKeyFile = None,
) -> Call[authn.AuthMethod]:
    """Change how a host is asked; --header-file replaces all headers."""
    headers, access_key = _secrets(header_file, access_key_file)
    if port is None and not headers and not access_key:
        raise Usage("say what to change, for example with --port")
    changes = authn.AuthMethodFields(port=port, headers=headers or None, access_key=access_key or None)
    return authn.update_auth_method(service_type, host, changes)


auth_methods.sends(
    "delete", authn.delete_auth_method, "auth method of {service_type} on {host} deleted",
    "Remove the auth method of a host: no client can log in there until it is created again.", SERVICE_TYPE | HOST,
)  # fmt: skip


def _secrets(header_files: Texts, access_key_file: str | None) -> tuple[Mapping[str, str], str | None]:
    headers = {}
    for pair in header_files or []:
        name, separator, path = pair.partition("=")
        if not (name and separator and path):
            raise Usage(f"--header-file {pair!r} must look like NAME=FILE")
        headers[name] = secret_of(path, "header")
    return headers, secret_of(access_key_file, "access key") if access_key_file else None
