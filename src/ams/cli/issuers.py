"""`ams issuers`: OpenID Connect issuers whose tokens are accepted. Secrets come from files and are never printed."""

import sys
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from ams.cli import rights
from ams.cli.arguments import Output
from ams.cli.command import Session, examples, with_session
from ams.cli.completing import issuer_names
from ams.cli.exits import Usage
from ams.cli.output import Format, columns, document, emit, fields
from ams.client import wire
from ams.client.connection import read_secret
from ams.client.errors import NotFound
from ams.client.wire.issuers import KEPT

app = typer.Typer(
    help="OpenID Connect issuers whose tokens are accepted.",
    no_args_is_help=True,
    epilog=examples(
        "ams issuers set checkin --url https://issuer.example --audience ams --create-users"
        " --role garden=publisher=urn:mace:issuer.example:group:garden",
        "ams issuers show checkin",
        "ams issuers check issuers.toml",
    ),
)

IssuerName = Annotated[
    str, typer.Argument(metavar="ISSUER", help="Name of the issuer.", show_default=False, autocompletion=issuer_names)
]
Texts = list[str] | None


class Introspect(StrEnum):
    """Which tokens the issuer is asked about."""

    NEVER = "never"
    OPAQUE = "opaque"
    ALWAYS = "always"


@app.command("list")
@with_session
def list_(session: Session) -> None:
    """List the issuers, those of the settings first."""
    found = session.call(wire.list_issuers())
    rows = [(each.name, each.source, _keys(each.keys), each.url) for each in found.issuers]
    session.show(found, columns(("ISSUER", "SET BY", "KEYS", "URL"), rows))


@app.command()
@with_session
def show(session: Session, issuer: IssuerName) -> None:
    """Show one issuer, and how it stands with its keys; without the secret."""
    _show(session, session.call(wire.get_issuer(issuer)))


@app.command("set")
@with_session
def set_(
    session: Session,
    issuer: IssuerName,
    url: Annotated[str | None, typer.Option(help="Exactly as tokens say it in iss.")] = None,
    audience: Annotated[Texts, typer.Option(help="One of them is in aud; may be repeated.")] = None,
    client: Annotated[Texts, typer.Option(help="One of them is azp or client_id; may be repeated.")] = None,
    jwks_url: Annotated[str | None, typer.Option(help="Where its keys are; default: as discovery says.")] = None,
    introspect: Annotated[Introspect | None, typer.Option(help="Which tokens it is asked about.")] = None,
    introspection_url: Annotated[str | None, typer.Option(help="Where; default: as discovery says.")] = None,
    client_id: Annotated[str | None, typer.Option(metavar="ID", help="Who asks it.")] = None,
    client_secret_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="File of the secret of who asks it; - is standard input.")
    ] = None,
    create_users: Annotated[
        bool | None,
        typer.Option("--create-users/--no-create-users", help="Whether who is bound to nobody becomes a user."),
    ] = None,
    entitlement_claim: Annotated[Texts, typer.Option(metavar="CLAIM", help="With entitlements; repeatable.")] = None,
    role: Annotated[
        Texts,
        typer.Option(metavar="PROJECT=ROLE=ENTITLEMENT", help="Role in a project by an entitlement; repeatable."),
    ] = None,
) -> None:
    """Believe the tokens of an issuer, or change what is given of it; an empty value takes it away.

    What may be repeated replaces all of its kind.
    """
    changes: dict[str, Any] = {
        "url": url,
        "audiences": _some(audience),
        "clients": _some(client),
        "jwks_url": jwks_url,
        "introspect": introspect.value if introspect else None,
        "introspection_url": introspection_url,
        "client_id": client_id,
        "client_secret": None if client_secret_file is None else _secret(client_secret_file),
        "create_users": create_users,
        "entitlement_claims": _some(entitlement_claim),
        "roles": None if role is None else rights.rules(_some(role) or ()),
    }
    said = {name: value for name, value in changes.items() if value is not None}
    _show(session, _set(session, issuer, said))


@app.command()
@with_session
def delete(session: Session, issuer: IssuerName) -> None:
    """Believe the tokens of an issuer no more, at once; users and bindings stay."""
    session.call(wire.delete_issuer(issuer))
    session.done(f"issuer {issuer} deleted")


@app.command()
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="TOML file of issuers.", show_default=False)],
    output: Output = Format.TABLE,
) -> None:
    """Read a file of issuers as the service would at its start, and show them without their secrets; asks nobody."""
    # Here, not above: what reads it is of the service, which no other of these commands needs.
    from ams.core.issuer import read_issuers

    found = [_as_shown(msgspec.to_builtins(each)) for each in read_issuers(file)]
    if output is Format.JSON:
        emit(document(wire.Issuers(issuers=found)))
        return
    rows = [(each.name, _asked(each), ", ".join(rights.rule_texts(each.roles)) or "-", each.url) for each in found]
    emit(columns(("ISSUER", "FOR", "ROLES", "URL"), rows))


def _set(session: Session, name: str, said: dict[str, Any]) -> wire.Issuer:
    if not said:
        raise Usage("say what to set, for example with --url")
    try:
        there = session.call(wire.get_issuer(name))
    except NotFound:
        if not said.get("url"):
            raise Usage(f"there is no issuer {name}: to make one, give --url") from None
        return session.call(wire.create_issuer(wire.Issuer(name=name, **said)))
    return session.call(wire.update_issuer(msgspec.structs.replace(there, **said)))


def _some(texts: Texts) -> Texts:
    """Return what was said without empty texts, which take what there is away; None if nothing was said."""
    return None if texts is None else [each for each in texts if each]


def _secret(path: str) -> str:
    if not path:
        return ""
    found = sys.stdin.readline().strip() if path == "-" else read_secret(path, "secret")
    if not found:
        raise Usage("standard input holds no secret" if path == "-" else f"secret file {path} is empty")
    return found


def _as_shown(values: dict[str, Any]) -> wire.Issuer:
    shown = msgspec.convert(values, wire.Issuer)
    return msgspec.structs.replace(shown, client_secret=KEPT if shown.client_secret else "", source="")


def _asked(issuer: wire.Issuer) -> str:
    """Return what tokens must be for."""
    return ", ".join([*issuer.audiences, *(f"client {each}" for each in issuer.clients)]) or "-"


def _keys(keys: wire.IssuerKeys) -> str:
    if keys.failure:
        return f"failed: {keys.failure}"
    return ", ".join(keys.ids) or "not fetched yet"


def _show(session: Session, found: wire.Issuer) -> None:
    values = {
        "issuer": found.name,
        "url": found.url,
        "set by": found.source,
        "audiences": ", ".join(found.audiences),
        "clients": ", ".join(found.clients),
        "keys at": found.jwks_url,
        "keys": _keys(found.keys),
        "keys fetched": found.keys.fetched_on,
        "asked about tokens": found.introspect,
        "asked at": found.introspection_url,
        "asked by": found.client_id,
        "secret": "kept" if found.client_secret else "",
        "creates users": "yes" if found.create_users else "no",
        "entitlements in": ", ".join(found.entitlement_claims),
        "roles": ", ".join(rights.rule_texts(found.roles)),
    }
    session.show(found, fields(values))
