"""`ams bindings`: by which identities at OpenID Connect issuers a user logs in."""

from typing import Annotated

import typer

from ams.cli.command import Session, examples, with_session
from ams.cli.completing import binding_names, user_names
from ams.cli.output import columns, fields
from ams.client import wire

app = typer.Typer(
    help="Bindings: by which identities at issuers a user logs in.",
    no_args_is_help=True,
    epilog=examples(
        "ams bindings create checkin --user jane --issuer https://issuer.example --subject 4f9c@issuer.example",
        "ams bindings list --user jane",
    ),
)

BindingName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the binding.", show_default=False, autocompletion=binding_names)
]
Owner = Annotated[str, typer.Option(metavar="USER", help="Whose.", autocompletion=user_names, show_default=False)]


@app.command("list")
@with_session
def list_(
    session: Session,
    user: Annotated[
        str | None, typer.Option(metavar="USER", help="Whose; default: yours.", autocompletion=user_names)
    ] = None,
) -> None:
    """List the bindings of a user, oldest first."""
    found = session.call(wire.list_bindings(user or session.call(wire.get_profile()).name))
    rows = [(each.name, _maker(each), each.created_on, each.issuer, each.subject) for each in found.bindings]
    session.show(found, columns(("BINDING", "MADE BY", "CREATED", "ISSUER", "SUBJECT"), rows))


@app.command()
@with_session
def create(
    session: Session,
    binding: BindingName,
    user: Owner,
    issuer: Annotated[str, typer.Option(metavar="URL", help="As tokens say it in iss.", show_default=False)],
    subject: Annotated[str, typer.Option(help="As tokens say it in sub.", show_default=False)],
) -> None:
    """Let an identity at an issuer log in as a user."""
    made = session.call(wire.create_binding(user, binding, issuer, subject))
    values = {
        "binding": made.name,
        "user": made.user,
        "issuer": made.issuer,
        "subject": made.subject,
        "created": made.created_on,
        "created by": made.created_by,
    }
    session.show(made, fields(values))


@app.command()
@with_session
def delete(session: Session, binding: BindingName, user: Owner) -> None:
    """Let an identity log in as this user no more, at once; its token stays good elsewhere."""
    session.call(wire.delete_binding(user, binding))
    session.done(f"binding {binding} of {user} deleted")


def _maker(binding: wire.Binding) -> str:
    return "first login" if binding.by_login else binding.created_by or "-"
