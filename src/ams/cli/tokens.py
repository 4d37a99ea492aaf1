"""`ams token`: tokens of a user besides its own, each with a name, perhaps an end and rights of its own."""

from collections.abc import Callable
from functools import partial
from typing import Annotated

import msgspec

from ams.cli import rights
from ams.cli.arguments import argument, option, time_text, whole_seconds
from ams.cli.command import Group, Session
from ams.cli.completing import subscription_names, token_names, topic_names, user_names
from ams.cli.exits import Usage
from ams.cli.google_file import new_key, service_account
from ams.cli.output import note
from ams.cli.secret_file import new_file, secret_file
from ams.client import wire
from ams.client.wire import Call

app = Group(
    "ams token create sensor-7 --publish readings --expires-in 90d --to-file sensor-7.token",
    "ams token create sensor-8 --publish readings --google-file sensor-8.json",
    "ams token list --user sensor",
    "ams token revoke sensor-7",
)

KEY_SHOWN = 12
"""Digits of a key's id in a list, enough to tell keys apart."""

TokenName = Annotated[str, argument("NAME", "Name of the token.", token_names)]
User = Annotated[str | None, option("Whose; default: you.", metavar="USER", complete=user_names)]
ExpiresIn = Annotated[str | None, option("Such as 90d or 12h from now.", metavar="DURATION")]
ExpiresOn = Annotated[str | None, option("2030-05-01 or 2030-05-01T12:00:00Z.", metavar="TIME")]
Publish = Annotated[
    list[str] | None, option("Good for publishing to it; may be repeated.", metavar="TOPIC", complete=topic_names)
]
Consume = Annotated[
    list[str] | None, option("Good for consuming from it; may be repeated.", metavar="SUB", complete=subscription_names)
]
Rights = Annotated[
    list[str] | None, option("Good for this action there; may be repeated.", "--right", metavar="ACTION=RESOURCE")
]
ToFile = Annotated[
    str | None, option("Write the token there, for you alone, and not out.", "--to-file", metavar="FILE")
]
GoogleFile = Annotated[
    str | None,
    option("Make a key in its place, for programs of Google's libraries.", "--google-file", metavar="FILE"),
]


def _fields(token: wire.NamedToken) -> dict[str, str]:
    return {
        "token": token.name,
        "user": token.user,
        "created": token.created_on,
        "created by": token.created_by,
        "expires": token.expires_on or "never",
        "last used": token.last_used or "never",
        "good for": rights.shown(token.rights),
    } | ({"key": token.key_id, "client email": token.client_email} if token.key_id else {})


@app.does()
def create(
    session: Session,
    name: TokenName,
    user: User = None,
    expires_in: ExpiresIn = None,
    expires_on: ExpiresOn = None,
    publish: Publish = None,
    consume: Consume = None,
    right: Rights = None,
    to_file: ToFile = None,
    google_file: GoogleFile = None,
) -> None:
    """Make a token and print it, alone and this once; without rights it is good for all that its user may do."""
    given = rights.shorthands(publish or [], consume or [], session.chosen_project)
    given += [rights.right(each) for each in right or []]
    if expires_in is not None and expires_on is not None:
        raise Usage("give --expires-in or --expires-on, not both")
    if to_file is not None and google_file is not None:
        raise Usage("give --to-file or --google-file, not both")
    wanted = partial(
        wire.create_token,
        _of(session, user),
        name,
        expires_on=time_text(expires_on) if expires_on is not None else "",
        expires_in=_seconds(expires_in) if expires_in is not None else None,
        rights=given or None,
    )
    if google_file is not None:
        _create_key(session, wanted, google_file)
        return
    call = wanted()
    if to_file is None:
        _print(session, session.call(call))
        return
    with secret_file(to_file) as keep:
        made = session.call(call)
        keep(made.token)
    session.show(msgspec.structs.replace(made, token=""), _fields(made))
    note(f"the token is in {to_file}")


@app.lists(
    "tokens",
    {
        "TOKEN": "name",
        "CREATED": "created_on",
        "EXPIRES": lambda each: each.expires_on or "-",
        "LAST USED": lambda each: each.last_used or "-",
        "KEY": lambda each: each.key_id[:KEY_SHOWN] or "-",
        "GOOD FOR": lambda each: rights.shown(each.rights),
    },
)
def list_(session: Session, user: User = None) -> Call[wire.NamedTokens]:
    """List the named tokens of a user, oldest first, those that have expired too."""
    return wire.list_tokens(_of(session, user))


@app.shows(_fields)
def show(session: Session, name: TokenName, user: User = None) -> Call[wire.NamedToken]:
    """Show a named token without its text, which is shown only when the token is made."""
    return wire.get_token(_of(session, user), name)


@app.does()
def revoke(session: Session, name: TokenName, user: User = None) -> None:
    """Take a named token away: it is dead at once."""
    owner = _of(session, user)
    session.call(wire.revoke_token(owner, name))
    session.done(f"token {name} of {owner} revoked")


def _create_key(session: Session, wanted: Callable[..., Call[wire.NamedToken]], path: str) -> None:
    """Make a key pair, a token with its public half, and a file with its private half, which goes nowhere else."""
    project = session.project
    with new_file(path) as keep:
        pair = new_key()
        made = session.call(wanted(public_key=pair.public))
        keep(service_account(project, made, pair.private))
    session.show(made, _fields(made))
    note(f"the key is in {path}, for GOOGLE_APPLICATION_CREDENTIALS of programs")


def _of(session: Session, user: str | None) -> str:
    return user or session.call(wire.get_profile()).name


def _seconds(text: str) -> int:
    read = whole_seconds(text)
    if not read:
        raise Usage(f"{text!r} is no duration of whole seconds such as 90d, 12h or 90s")
    return read


def _print(session: Session, made: wire.NamedToken) -> None:
    """Write the token alone, so that a shell can take it, and say on stderr what it is."""
    session.show(made, made.token)
    if not session.for_programs:
        until = f"until {made.expires_on}" if made.expires_on else "with no end"
        note(f"token {made.name} of {made.user}, {until}, good for {rights.shown(made.rights)}; it is not shown again")
