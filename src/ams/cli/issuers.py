"""`ams issuers` and `ams bindings`: OpenID Connect issuers whose tokens are accepted, and by which users log in.

Secrets come from files and are never printed.
"""

import sys
from typing import Annotated, Any, Literal

import msgspec

from ams.cli import rights
from ams.cli.arguments import Output, Texts, argument, binding_names, issuer_names, option, user_names
from ams.cli.command import Columns, CommandGroup, Session, columns_of, named, table
from ams.cli.exit_codes import Usage
from ams.cli.output import Format, write
from ams.cli.secret_file import secret_of
from ams.client import wire
from ams.client.errors import NotFound
from ams.client.wire import Call
from ams.client.wire.users import MASK

app = CommandGroup(
    "ams issuers set checkin --url https://issuer.example --audience ams --create-users"
    " --role garden=publisher=urn:mace:issuer.example:group:garden",
    "ams issuers show checkin",
    "ams issuers check issuers.toml",
)
bindings = CommandGroup(
    "ams bindings create checkin --user jane --issuer https://issuer.example --subject 4f9c@issuer.example",
    "ams bindings list --user jane",
)

IssuerName = Annotated[str, argument("ISSUER", "Name of the issuer.", issuer_names)]
ISSUER = {"issuer": IssuerName}
OWNED_BINDING = {
    "user": Annotated[str, option("Whose.", metavar="USER", complete=user_names, show_default=False)],
    "binding": Annotated[str, argument("NAME", "Name of the binding.", binding_names)],
}
IDENTITY = {
    "issuer": Annotated[str, option("As tokens say it in iss.", metavar="URL", show_default=False)],
    "subject": Annotated[str, option("As tokens say it in sub.", show_default=False)],
}
Introspect = Literal["never", "opaque", "always"]


_FIELDS: Columns = {
    "issuer": "name",
    "url": "url",
    "set by": "source",
    **named("audiences", "clients"),
    "keys at": "jwks_url",
    "keys": lambda each: f"failed: {each.keys.failure}" if each.keys.failure else each.keys.ids or "not fetched yet",
    "keys fetched": lambda each: each.keys.fetched_on,
    "asked about tokens": "introspect",
    "asked at": "introspection_url",
    "asked by": "client_id",
    "secret": lambda each: "kept" if each.client_secret else "",
    "creates users": lambda each: "yes" if each.create_users else "no",
    "entitlements in": "entitlement_claims",
    "roles": lambda each: rights.rule_texts(each.roles),
}


app.sends("list", wire.list_issuers, columns_of(_FIELDS, "issuer", "set by", "keys", "url"),
    "List the issuers, those of the settings first.", items="issuers")  # fmt: skip
app.sends("show", wire.get_issuer, _FIELDS,
    "Show one issuer, and how it stands with its keys; without the secret.", ISSUER)  # fmt: skip


@app.shows(_FIELDS, name="set")
def set_(
    session: Session,
    issuer: IssuerName,
    url: Annotated[str | None, option("Exactly as tokens say it in iss.")] = None,
    audience: Annotated[Texts, option("One of them is in aud; may be repeated.")] = None,
    client: Annotated[Texts, option("One of them is azp or client_id; may be repeated.")] = None,
    jwks_url: Annotated[str | None, option("Where its keys are; default: as discovery says.")] = None,
    introspect: Annotated[Introspect | None, option("Which tokens it is asked about.")] = None,
    introspection_url: Annotated[str | None, option("Where; default: as discovery says.")] = None,
    client_id: Annotated[str | None, option("Client id for introspection.", metavar="ID")] = None,
    client_secret_file: Annotated[
        str | None, option("File of the client secret for introspection; - is standard input.", metavar="FILE")
    ] = None,
    create_users: Annotated[bool | None, option("Whether an identity without a binding becomes a user.")] = None,
    entitlement_claim: Annotated[Texts, option("With entitlements; repeatable.", metavar="CLAIM")] = None,
    role: Annotated[
        Texts, option("Role in a project by an entitlement; repeatable.", metavar="PROJECT=ROLE=ENTITLEMENT")
    ] = None,
) -> Call[wire.Issuer]:
    """Believe the tokens of an issuer, or change what is given of it; an empty value takes it away.

    What may be repeated replaces all of its kind.
    """
    changes: dict[str, Any] = {
        "url": url,
        "audiences": _some(audience),
        "clients": _some(client),
        "jwks_url": jwks_url,
        "introspect": introspect,
        "introspection_url": introspection_url,
        "client_id": client_id,
        "client_secret": None if client_secret_file is None else _secret(client_secret_file),
        "create_users": create_users,
        "entitlement_claims": _some(entitlement_claim),
        "roles": None if role is None else rights.rules(_some(role) or ()),
    }
    said = {name: value for name, value in changes.items() if value is not None}
    if not said:
        raise Usage("say what to set, for example with --url")
    try:
        there = session.call(wire.get_issuer(issuer).with_version())
    except NotFound:
        if not said.get("url"):
            raise Usage(f"there is no issuer {issuer}: to make one, give --url") from None
        return wire.create_issuer(wire.Issuer(name=issuer, **said))
    return wire.update_issuer(msgspec.structs.replace(there.value, **said)).if_match(there.version)


app.sends("delete", wire.delete_issuer, "issuer {issuer} deleted",
    "Believe the tokens of an issuer no more, at once; users and bindings stay.", ISSUER)  # fmt: skip


@app.command()
def check(file: Annotated[str, argument("FILE", "TOML file of issuers.")], output: Output = Format.TABLE) -> None:
    """Read a file of issuers as the service does at its start. Show them without their secrets; send no request."""
    # Imported here: only this command needs the service's code.
    from ams.core.issuer import read_issuers

    read = [msgspec.convert(msgspec.to_builtins(each), wire.Issuer) for each in read_issuers(file)]
    found = [msgspec.structs.replace(each, client_secret=each.client_secret and MASK, source="") for each in read]
    shown: Columns = {
        "ISSUER": "name",
        "FOR": lambda each: ", ".join([*each.audiences, *(f"client {client}" for client in each.clients)]) or "-",
        "ROLES": lambda each: ", ".join(rights.rule_texts(each.roles)) or "-",
        "URL": "url",
    }
    write(output, wire.Issuers(issuers=found), table(shown, found))


def _some(texts: Texts) -> Texts:
    """Return values without empty texts (which clear the field); None if absent."""
    return None if texts is None else [each for each in texts if each]


def _secret(path: str) -> str:
    if not path:
        return ""
    if path != "-":
        return secret_of(path, "secret")
    found = sys.stdin.readline().strip()
    if not found:
        raise Usage("standard input holds no secret")
    return found


_BINDING: Columns = {"binding": "name", **named("user", "issuer", "subject", "created_on", "created_by")}


@bindings.shows(
    {
        "BINDING": "name",
        "MADE BY": lambda each: "first login" if each.by_login else each.created_by or "-",
        **columns_of(_BINDING, "created", "issuer", "subject"),
    },
    items="bindings",
    name="list",
)
def list_bindings(
    session: Session,
    user: Annotated[str | None, option("Whose; default: yours.", metavar="USER", complete=user_names)] = None,
) -> Call[wire.Bindings]:
    """List the bindings of a user, oldest first."""
    return wire.list_bindings(session.owner(user))


bindings.sends("create", wire.create_binding, _BINDING,
    "Let an identity at an issuer log in as a user.", OWNED_BINDING | IDENTITY)  # fmt: skip
bindings.sends("delete", wire.delete_binding, "binding {binding} of {user} deleted",
    "Let an identity log in as this user no more, at once; its token stays good elsewhere.", OWNED_BINDING)  # fmt: skip
