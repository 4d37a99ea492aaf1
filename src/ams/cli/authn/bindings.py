"""`ams authn bindings`: which certificate stands for which user."""

import re
import ssl
from typing import Annotated

from ams.authn.certificates.certificate import issuer_of, load, subject_of
from ams.cli.arguments import argument, option, user_names
from ams.cli.authn import bulk
from ams.cli.authn.session import BINDING, AuthnSession, BindingName, service_type_names
from ams.cli.command import Columns, CommandGroup, named, table
from ams.cli.exit_codes import Usage, file_named
from ams.client.wire import Call, authn
from ams.core.distinguished_names import normalise_name, of_certificate
from ams.core.errors import BadDocument, InvalidInput

app = CommandGroup(
    "ams authn bindings create jane --dn '/C=GR/O=Acme/CN=Jane' --user jane",
    "ams authn bindings create host1 --cert hostcert.pem --user host1 --host ams.example",
    "ams authn bindings find --cert usercert.pem",
    "ams authn bindings import-csv bindings.csv --dry-run",
    help="Bindings: which certificate stands for which user.",
    session=AuthnSession,
)

Dn = Annotated[str | None, option("Subject of the certificate, in any spelling.", metavar="DN")]
Cert = Annotated[str | None, option("The certificate itself (PEM or DER).", metavar="FILE")]
TypeOption = Annotated[str | None, option("Service type.", metavar="TYPE", complete=service_type_names)]
HostOption = Annotated[str | None, option("One of its hosts.")]
User = Annotated[
    str | None, option("The user of AMS, by name; its uuid is looked up at AMS.", metavar="USER", complete=user_names)
]
UniqueKey = Annotated[str | None, option("The user's id at the service, such as a uuid.", metavar="ID")]
AuthType = Annotated[str | None, option("How one logs in by it.")]
Issuer = Annotated[str | None, option("The only CA that is accepted; empty: any that is trusted.", metavar="DN")]

_COLUMNS: Columns = {
    "BINDING": "name",
    "HOST": "host",
    "USER'S ID": "unique_key",
    "LAST LOGIN": lambda each: each.last_auth or "-",
    "SUBJECT": "auth_identifier",
}

_FIELDS: Columns = {
    "binding": "name",
    "subject": "auth_identifier",
    "user's id": "unique_key",
    "host": "host",
    "service type": "service_uuid",
    **named("auth_type", "issuer", "uuid", "created_on", "updated_on"),
    "last login": "last_auth",
}


@app.shows(_COLUMNS, items="bindings", name="list")
def list_(session: AuthnSession, service_type: TypeOption = None, host: HostOption = None) -> Call[authn.Bindings]:
    """List bindings: all, or those of a host."""
    if (service_type is None) != (host is None):
        raise Usage("give --service-type and --host, or none of them")
    return authn.list_bindings() if not (service_type and host) else authn.list_host_bindings(service_type, host)


app.sends("show", authn.get_binding, _FIELDS, "Show one binding.", BINDING)


@app.does()
def find(
    session: AuthnSession, dn: Dn = None, cert: Cert = None, service_type: TypeOption = None, host: HostOption = None
) -> None:
    """Find the bindings of a subject, on every host unless one is named."""
    subject = _subject(dn, cert)
    if subject is None:
        raise Usage("give --dn or --cert")
    if service_type and host:
        found = session.call(authn.find_binding(service_type, host, subject))
    elif service_type or host:
        raise Usage("give --service-type and --host, or none of them")
    else:
        every = session.call(authn.list_bindings()).bindings
        found = authn.Bindings(bindings=[each for each in every if each.auth_identifier == subject])
    session.show(found, table(_COLUMNS, found.bindings))


@app.shows(_FIELDS)
def create(
    session: AuthnSession,
    binding: BindingName,
    dn: Dn = None,
    cert: Cert = None,
    user: User = None,
    unique_key: UniqueKey = None,
    service_type: TypeOption = "ams",
    host: HostOption = None,
    auth_type: AuthType = authn.X509,
    issuer: Issuer = None,
    with_issuer: Annotated[
        bool, option("Believe only the issuer of the certificate of --cert.", "--with-issuer")
    ] = False,
) -> Call[authn.Binding]:
    """Bind a subject to a user; --host may be left out where the service type has one only."""
    subject, key = _subject(dn, cert), _key_of_user(session, user, unique_key)
    if subject is None or key is None:
        raise Usage("a binding needs a subject (--dn or --cert) and a user (--user or --unique-key)")
    if with_issuer and (cert is None or issuer is not None):
        raise Usage("--with-issuer takes the issuer from --cert, and no --issuer")
    accepted = _names_in(cert)[1] if with_issuer and cert else _subject_of(issuer) if issuer else ""
    found = session.call(authn.get_service_type(service_type or "ams"))
    if host is None and len(found.hosts) != 1:
        raise Usage(f"{found.name} runs on {', '.join(found.hosts)}: give --host")
    return authn.create_binding(
        binding, found.uuid, host or found.hosts[0], subject, key, auth_type=auth_type or authn.X509, issuer=accepted
    )


@app.shows(_FIELDS)
def update(
    session: AuthnSession,
    binding: BindingName,
    rename: Annotated[str | None, option("New name.", metavar="NAME")] = None,
    dn: Dn = None,
    cert: Cert = None,
    user: User = None,
    unique_key: UniqueKey = None,
    service_type: TypeOption = None,
    host: HostOption = None,
    auth_type: AuthType = None,
    issuer: Issuer = None,
) -> Call[authn.Binding]:
    """Change what is given of a binding."""
    changes = authn.BindingFields(
        name=rename, auth_identifier=_subject(dn, cert), unique_key=_key_of_user(session, user, unique_key),
        service_uuid=session.call(authn.get_service_type(service_type)).uuid if service_type else None, host=host,
        auth_type=auth_type, issuer=_subject_of(issuer) if issuer else issuer,
    )  # fmt: skip
    if changes == authn.BindingFields():
        raise Usage("say what to change, for example with --user")
    return authn.update_binding(binding, changes)


app.sends("delete", authn.delete_binding, "binding {binding} deleted",
    "Remove a binding; a token its user has already stays valid.", BINDING)  # fmt: skip


@app.does("import-csv")
def import_csv(
    session: AuthnSession,
    file: Annotated[str, argument("FILE", "CSV with a line of column names.")],
    dry_run: Annotated[bool, option("Check and compare, change nothing.", "--dry-run")] = False,
) -> None:
    """Make bindings of the lines of a file, and change those there are; all lines are checked before any is sent.

    Columns: name, service_type, host, auth_identifier (any spelling), user (of AMS, by name) or unique_key; and
    auth_type, issuer if wanted. Imported again, there is nothing to do.
    """
    read = list(bulk.read_bindings(file, session.uuid_of))
    types = session.call(authn.list_service_types()).service_types
    wanted = [each for each in read if isinstance(each, bulk.DeclaredBinding)]
    there = session.call(authn.list_bindings()).bindings
    planned = {each.wanted.place: each for each in bulk.plan(wanted, types, there)}
    reports = [each if isinstance(each, bulk.RecordReport) else planned[each.place].report for each in read]
    refused = [each for each in reports if each.outcome is bulk.RecordOutcome.REFUSED]
    if dry_run or refused:
        bulk.show(session, reports, applied=False)
    if refused:
        raise BadDocument(f"{len(refused)} of {len(reports)} bindings of {file} cannot be; nothing was changed")
    if dry_run:
        return
    uuids = {each.name: each.uuid for each in types}
    sent = [bulk.send_binding(each, uuids, session.call) for each in planned.values()]
    bulk.show(session, sent, applied=True)
    failed = [each for each in sent if each.outcome is bulk.RecordOutcome.REFUSED]
    if failed:
        raise InvalidInput(f"{len(failed)} of {len(sent)} bindings were refused by the service")


def _subject(dn: str | None, cert: str | None) -> str | None:
    if dn is not None and cert is not None:
        raise Usage("give --dn or --cert, not both")
    if cert is not None:
        return _names_in(cert)[0]
    return None if dn is None else _subject_of(dn)


def _key_of_user(session: AuthnSession, user: str | None, unique_key: str | None) -> str | None:
    """Return the key of the user; None if neither is given."""
    if user is not None and unique_key is not None:
        raise Usage("give --user or --unique-key, not both")
    return unique_key if user is None else session.uuid_of(user)


def _subject_of(text: str) -> str:
    try:
        return normalise_name(text)
    except ValueError as error:
        raise Usage(f"{text[:80]!r}: {error}") from None


_PEM = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def _names_in(path: str) -> tuple[str, str]:
    """Return subject and issuer of a file's first certificate, PEM or DER. Raises `Usage` if there is none."""
    with file_named(path), open(path, "rb") as file:
        content = file.read(1 << 20)
    try:
        pem = _PEM.search(content.decode("latin-1"))
        found, _ = load(ssl.PEM_cert_to_DER_cert(pem[0]) if pem else content)
        return of_certificate(subject_of(found)), of_certificate(issuer_of(found))
    except ValueError:
        raise Usage(f"{path} holds no certificate that can be read") from None
