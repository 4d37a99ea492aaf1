"""`ams authn`: the certificate service, and what an administrator keeps there.

service_types    `ams authn service-types` and `auth-methods`
bindings         `ams authn bindings`
bulk             many bindings at once, from CSV
importer         `ams authn import` and `ams migrate authn`: a database of the reference
session          options of the connection that all these commands share

Here are the groups, keys, the audit log and `login`.
"""

from collections.abc import Collection
from typing import Annotated, Literal

from ams.cli.arguments import Output, option
from ams.cli.audit import File, Filters, show
from ams.cli.authn import bindings, importer, service_types
from ams.cli.authn.session import KEY, AuthnSession
from ams.cli.command import CommandGroup, PageOptions, named
from ams.cli.output import Format, write
from ams.client import Client
from ams.client.connection import SettingsSource, authn_connection
from ams.client.transport import AMS
from ams.client.transport import host as host_of
from ams.client.wire import authn
from ams.core.settings import environment

app = CommandGroup(
    "ams authn serve --data ./ams-authn --tls-self-signed --client-ca /etc/grid-security/certificates",
    "ams authn service-types create ams --host ams.example",
    "ams authn bindings create jane --dn '/C=GR/O=Acme/CN=Jane' --user jane",
    "ams authn login --cert jane.pem --cert-key jane.key",
)
keys = CommandGroup(
    "ams authn keys create dashboard --scope read",
    "ams authn keys delete dashboard",
    help="Management keys of the certificate service, by name.",
    session=AuthnSession,
)


@app.command()
def serve() -> None:
    """Run the certificate service."""
    # Never runs: `ams.cli.main` sends these words to `ams.cli.serve`. It is only a line of the overview.


app.add_typer(service_types.app, name="service-types")
app.add_typer(service_types.auth_methods, name="auth-methods")
app.add_typer(bindings.app, name="bindings")
app.add_typer(keys, name="keys")


keys.sends("list", authn.list_keys, {"KEY": "name", "SCOPE": "scope", "CREATED": "created_on"},
    "List the keys; none is shown.", items="keys")  # fmt: skip
SCOPE = {"scope": (Annotated[Literal["read", "write"], option("Whether it may write, or read only.")], "read")}
keys.sends(
    "create", authn.create_key, named("name", "scope", "key", "created_on"), "Make a key and show it, this once.",
    KEY | SCOPE,
)  # fmt: skip
keys.sends("delete", authn.delete_key, "key {name} deleted", "Take a key away; it opens nothing any more.", KEY)


@app.command()
def login(
    cert: Annotated[str, option("Your certificate (PEM).", metavar="FILE", show_default=False)],
    cert_key: Annotated[str | None, option("Its key; absent: it is in FILE too.", metavar="FILE")] = None,
    service_type: Annotated[str, option("What to log in to.", metavar="TYPE")] = AMS,
    host: Annotated[str | None, option("On which of its hosts; absent: that of the certificate service.")] = None,
    endpoint: Annotated[str | None, option("Certificate service, https://HOST:PORT (AMS_AUTHN_ENDPOINT).")] = None,
    ca: Annotated[str | None, option("File of CA certificates to trust (AMS_AUTHN_CA).")] = None,
    profile: Annotated[str | None, option("Profile to take the rest from (AMS_PROFILE).")] = None,
    timeout: Annotated[float, option("Seconds an answer may take.", min=0.1)] = 30.0,
    output: Output = Format.TABLE,
) -> None:
    """Log in with a certificate and print the token.

    It is a token as any other: `export AMS_TOKEN=$(ams authn login --cert FILE --cert-key FILE)`.
    """
    found = authn_connection(SettingsSource(authn_endpoint=endpoint, authn_ca=ca), profile, environment())
    with Client(found.endpoint, ca=found.ca, cert=cert, key=cert_key, timeout=timeout, retry=None) as client:
        token = client.call(authn.authx509(service_type, host or host_of(client.endpoint)))
    write(output, token, token.token)


app.does("import")(importer.import_)


@app.does()
def audit(session: AuthnSession, filters: Filters, *, file: File = "", page: PageOptions) -> None:
    """Show who did which change, and who logged in or failed to, newest first. Times are UTC.

    It takes the management key, or a service_admin's token. A file (authn-audit.jsonl) is read from its beginning,
    oldest first, also while no service runs; its lines are JSON with -o json.
    """
    show(session, filters, file, page, _certificate_changes)


def _certificate_changes() -> Collection[str]:
    from ams.authn.http.routes import CHANGE_ACTIONS

    return CHANGE_ACTIONS
