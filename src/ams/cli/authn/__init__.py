"""`ams authn`: the certificate service, and what an administrator keeps there."""

import typer

from ams.cli.authn import audit, auth_methods, bindings, importing, keys, login, service_types
from ams.cli.command import examples

app = typer.Typer(
    help="The certificate service, and who logs in with what.",
    no_args_is_help=True,
    epilog=examples(
        "ams authn serve --data ./ams-authn --tls-self-signed --client-ca /etc/grid-security/certificates",
        "ams authn service-types create ams --host ams.example",
        "ams authn bindings create jane --dn '/C=GR/O=Acme/CN=Jane' --user jane",
        "ams authn login --cert jane.pem --cert-key jane.key",
    ),
)


@app.command()
def serve() -> None:
    """Run the certificate service."""
    # Never runs: `ams.cli.main` gives these two words to `ams.cli.authn.serve`. This line of the overview does.


app.add_typer(service_types.app, name="service-types")
app.add_typer(auth_methods.app, name="auth-methods")
app.add_typer(bindings.app, name="bindings")
app.add_typer(keys.app, name="keys")
app.command("login")(login.login)
app.command("import")(importing.import_)
app.command("audit")(audit.audit)


@app.callback()
def authn() -> None:
    """Keep this a group of commands, whatever is added to it."""
