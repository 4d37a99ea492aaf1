"""`ams authn service-types`: kinds of services, and the hosts they run on."""

from typing import Annotated

import typer

from ams.cli.authn.command import ServiceTypeName, with_authn
from ams.cli.command import Session, examples
from ams.cli.exits import Usage
from ams.cli.output import columns, fields
from ams.client.wire import authn

app = typer.Typer(
    help="Service types: kinds of services, and the hosts they run on.",
    no_args_is_help=True,
    epilog=examples(
        "ams authn service-types create ams --host ams.example",
        "ams authn service-types update ams --host ams.example --host ams-devel.example",
        "ams authn service-types show ams",
    ),
)

Hosts = Annotated[list[str] | None, typer.Option("--host", metavar="HOST", help="A host; may be repeated.")]
AuthTypes = Annotated[
    list[str] | None, typer.Option("--auth-type", metavar="TYPE", help="How one may log in; may be repeated.")
]
AuthMethod = Annotated[str | None, typer.Option(help="How hosts are asked for users: headers or api-key.")]
VerifyHost = Annotated[
    bool | None,
    typer.Option(
        "--verify-client-host/--no-verify-client-host",
        help="Whether a client's address must be one of its certificate's names.",
    ),
]


@app.command("list")
@with_authn
def list_(session: Session) -> None:
    """List service types."""
    found = session.call(authn.list_service_types())
    rows = [
        (each.name, each.type, each.auth_method, ", ".join(each.auth_types), ", ".join(each.hosts), each.uuid)
        for each in found.service_types
    ]
    headers = ("SERVICE TYPE", "TYPE", "AUTH METHOD", "AUTH TYPES", "HOSTS", "UUID")
    session.show(found, columns(headers, rows))


@app.command()
@with_authn
def show(session: Session, service_type: ServiceTypeName) -> None:
    """Show one service type."""
    _show(session, session.call(authn.get_service_type(service_type)))


@app.command()
@with_authn
def create(
    session: Session,
    service_type: ServiceTypeName,
    host: Hosts = None,
    kind: Annotated[str, typer.Option("--type", help="ams, web-api or custom.")] = "ams",
    auth_method: AuthMethod = "headers",
    auth_type: AuthTypes = None,
    verify_client_host: VerifyHost = None,
) -> None:
    """Make a service type; its hosts then need an auth method each."""
    if not host:
        raise Usage("a service type runs somewhere: give --host")
    call = authn.create_service_type(
        service_type,
        host,
        kind=kind,
        auth_method=auth_method or "headers",
        auth_types=auth_type or [authn.X509],
        verify_client_host=bool(verify_client_host),
    )
    _show(session, session.call(call))


@app.command()
@with_authn
def update(
    session: Session,
    service_type: ServiceTypeName,
    rename: Annotated[str | None, typer.Option(metavar="NAME", help="New name.")] = None,
    host: Hosts = None,
    auth_method: AuthMethod = None,
    auth_type: AuthTypes = None,
    verify_client_host: VerifyHost = None,
) -> None:
    """Change a service type; --host and --auth-type replace all of their kind."""
    if all(each is None for each in (rename, host or None, auth_method, auth_type or None, verify_client_host)):
        raise Usage("say what to change, for example with --host")
    call = authn.update_service_type(
        service_type,
        name=rename,
        hosts=host or None,
        auth_method=auth_method,
        auth_types=auth_type or None,
        verify_client_host=verify_client_host,
    )
    _show(session, session.call(call))


@app.command()
@with_authn
def delete(session: Session, service_type: ServiceTypeName) -> None:
    """Remove a service type with all its auth methods and bindings."""
    session.call(authn.delete_service_type(service_type))
    session.done(f"service type {service_type} deleted")


def _show(session: Session, found: authn.ServiceType) -> None:
    values = {
        "service type": found.name,
        "uuid": found.uuid,
        "type": found.type,
        "hosts": ", ".join(found.hosts),
        "auth types": ", ".join(found.auth_types),
        "auth method": found.auth_method,
        "client hosts": "verified" if found.verify_client_host else "",
        "created": found.created_on,
        "updated": found.updated_on,
    }
    session.show(found, fields(values))
