"""`ams authn auth-methods`: how hosts are asked for their users. Secrets come from files and are never printed."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
import typer

from ams.cli.authn.command import HostName, ServiceTypeName, with_authn
from ams.cli.command import Session, examples
from ams.cli.exits import Usage
from ams.cli.output import columns, fields
from ams.client.connection import read_secret
from ams.client.wire import authn

app = typer.Typer(
    help="Auth methods: how hosts of service types are asked for their users.",
    no_args_is_help=True,
    epilog=examples(
        "ams authn auth-methods create ams ams.example --port 443 --header-file x-api-key=authn.token",
        "ams authn auth-methods update ams ams.example --header-file x-api-key=new.token",
        "ams authn auth-methods list",
    ),
)

HeaderFiles = Annotated[
    list[str] | None,
    typer.Option("--header-file", metavar="NAME=FILE", help="A header and the file of its value; may be repeated."),
]
AccessKeyFile = Annotated[
    str | None, typer.Option(metavar="FILE", help="File of the access key, for service types with api-key.")
]


@app.command("list")
@with_authn
def list_(session: Session) -> None:
    """List the auth methods of all service types, without their secrets."""
    found = session.call(authn.list_auth_methods())
    names = {each.uuid: each.name for each in session.call(authn.list_service_types()).service_types}
    rows = [
        (names.get(each.service_uuid, each.service_uuid), each.host, str(each.port), each.type, _headers(each))
        for each in found.auth_methods
    ]
    shown = msgspec.structs.replace(found, auth_methods=[authn.without_secrets(each) for each in found.auth_methods])
    session.show(shown, columns(("SERVICE TYPE", "HOST", "PORT", "TYPE", "HEADERS"), rows))


@app.command()
@with_authn
def show(session: Session, service_type: ServiceTypeName, host: HostName) -> None:
    """Show how a host is asked, without the secrets."""
    _show(session, session.call(authn.get_auth_method(service_type, host)))


@app.command()
@with_authn
def create(
    session: Session,
    service_type: ServiceTypeName,
    host: HostName,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the service there.")] = 443,
    header_file: HeaderFiles = None,
    access_key_file: AccessKeyFile = None,
) -> None:
    """Say how a host is asked for its users; for AMS the header x-api-key, with the token of a service_admin."""
    headers, access_key = _secrets(header_file, access_key_file)
    if not headers and not access_key:
        raise Usage("give --header-file or --access-key-file, as the service type's auth method asks")
    call = authn.create_auth_method(service_type, host, port, headers=headers, access_key=access_key or "")
    _show(session, session.call(call))


@app.command()
@with_authn
def update(
    session: Session,
    service_type: ServiceTypeName,
    host: HostName,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port of the service there.")] = None,
    header_file: HeaderFiles = None,
    access_key_file: AccessKeyFile = None,
) -> None:
    """Change how a host is asked; --header-file replaces all headers."""
    headers, access_key = _secrets(header_file, access_key_file)
    if port is None and not headers and not access_key:
        raise Usage("say what to change, for example with --port")
    call = authn.update_auth_method(
        service_type, host, port=port, headers=headers or None, access_key=access_key or None
    )
    _show(session, session.call(call))


@app.command()
@with_authn
def delete(session: Session, service_type: ServiceTypeName, host: HostName) -> None:
    """Forget how a host is asked: nobody can log in there until it is said anew."""
    session.call(authn.delete_auth_method(service_type, host))
    session.done(f"auth method of {service_type} on {host} deleted")


def _secrets(header_files: list[str] | None, access_key_file: str | None) -> tuple[Mapping[str, str], str | None]:
    headers = {}
    for pair in header_files or []:
        name, separator, path = pair.partition("=")
        if not (name and separator and path):
            raise Usage(f"--header-file {pair!r} must look like NAME=FILE")
        headers[name] = _secret(path, "header")
    return headers, _secret(access_key_file, "access key") if access_key_file else None


def _secret(path: str, what: str) -> str:
    found = read_secret(path, what)
    if not found:
        raise Usage(f"{what} file {path} is empty")
    return found


def _headers(method: authn.AuthMethod) -> str:
    return ", ".join(sorted(method.headers))


def _show(session: Session, found: authn.AuthMethod) -> None:
    values = {
        "host": found.host,
        "port": str(found.port),
        "type": found.type,
        "headers": _headers(found),
        "uuid": found.uuid,
        "service type": found.service_uuid,
        "created": found.created_on,
        "updated": found.updated_on,
    }
    session.show(authn.without_secrets(found), fields(values))
