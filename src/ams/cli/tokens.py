"""`ams token` and `ams open`: tokens of a user besides its own, each with a name, perhaps an end and rights of its own.

A key in place of a token's text is made here, for Google's libraries, and its private half stays in its file.
"""

import secrets
import webbrowser
from collections.abc import Callable
from functools import partial
from typing import Annotated
from urllib.parse import urlencode

import msgspec

from ams.cli import rights
from ams.cli.arguments import Texts, argument, option, subscription_names, token_names, topic_names, user_names
from ams.cli.command import CommandGroup, Session, with_options
from ams.cli.exit_codes import Usage
from ams.cli.output import document, emit, note
from ams.cli.secret_file import secret_file
from ams.cli.times import time_text, whole_seconds
from ams.client import wire
from ams.client.errors import NotFound
from ams.client.wire import Call

app = CommandGroup(
    "ams token create sensor-7 --publish readings --expires-in 90d --to-file sensor-7.token",
    "ams token create sensor-8 --publish readings --google-file sensor-8.json",
    "ams token list --user sensor",
    "ams token revoke sensor-7",
)

NOBODY = "https://ams.invalid/"
"""Where the libraries would log in, which they do not do for Pub/Sub: they sign what they show. No host is called so
(RFC 6761, 6.4), so nothing that is signed with a key gets to somebody else.
"""
KEY_BITS = 2048
KEY_ID_DIGITS = 12  # digits of a key's id in a list, enough to tell keys apart

TokenName = Annotated[str, argument("NAME", "Name of the token.", token_names)]
User = Annotated[str | None, option("Whose; default: you.", metavar="USER", complete=user_names)]


def _fields(token: wire.NamedToken) -> dict[str, str]:
    return {
        "token": token.name,
        "user": token.user,
        "created": token.created_on,
        "created by": token.created_by,
        "expires": token.expires_on or "never",
        "last used": token.last_used or "never",
        "good for": rights.format_rights(token.rights),
    } | ({"key": token.key_id, "client email": token.client_email} if token.key_id else {})


@app.does()
def create(
    session: Session,
    name: TokenName,
    user: User = None,
    expires_in: Annotated[str | None, option("Such as 90d or 12h from now.", metavar="DURATION")] = None,
    expires_on: Annotated[str | None, option("2030-05-01 or 2030-05-01T12:00:00Z.", metavar="TIME")] = None,
    publish: Annotated[
        Texts, option("Good for publishing to it; may be repeated.", metavar="TOPIC", complete=topic_names)
    ] = None,
    consume: Annotated[
        Texts, option("Good for consuming from it; may be repeated.", metavar="SUB", complete=subscription_names)
    ] = None,
    right: Annotated[Texts, option("Good for this action there; may be repeated.", metavar="ACTION=RESOURCE")] = None,
    to_file: Annotated[str | None, option("Write the token there, for you alone, and not out.", metavar="FILE")] = None,
    google_file: Annotated[
        str | None, option("Make a key in its place, for programs of Google's libraries.", metavar="FILE")
    ] = None,
) -> None:
    """Make a token and print it, alone and this once; without rights it is good for all that its user may do."""
    given = rights.shorthands(publish or [], consume or [], session.at.project)
    given += [rights.right(each) for each in right or []]
    if expires_in is not None and expires_on is not None:
        raise Usage("give --expires-in or --expires-on, not both")
    if to_file is not None and google_file is not None:
        raise Usage("give --to-file or --google-file, not both")
    wrong = f"{expires_in!r} is no duration of whole seconds such as 90d, 12h or 90s"
    seconds = None if expires_in is None else whole_seconds(expires_in, wrong)
    wanted = partial(
        wire.create_token, session.owner(user), name,
        expires_on=time_text(expires_on) if expires_on is not None else "", expires_in=seconds, rights=given or None,
    )  # fmt: skip
    if google_file is not None:
        _create_key(session, wanted, google_file)
        return
    call = wanted()
    if to_file is None:
        made = session.call(call)
        session.show(made, made.token)  # alone, so that a shell can take it
        if not session.for_programs:
            until = f"until {made.expires_on}" if made.expires_on else "with no end"
            good_for = rights.format_rights(made.rights)
            note(f"token {made.name} of {made.user}, {until}, good for {good_for}; it is not shown again")
        return
    with secret_file(to_file) as keep:
        made = session.call(call)
        keep(made.token)
    session.show(msgspec.structs.replace(made, token=""), _fields(made))
    note(f"the token is in {to_file}")


@app.shows(
    {
        "TOKEN": "name",
        "CREATED": "created_on",
        "EXPIRES": lambda each: each.expires_on or "-",
        "LAST USED": lambda each: each.last_used or "-",
        "KEY": lambda each: each.key_id[:KEY_ID_DIGITS] or "-",
        "GOOD FOR": lambda each: rights.format_rights(each.rights),
    },
    items="tokens",
    name="list",
)
def list_(session: Session, user: User = None) -> Call[wire.NamedTokens]:
    """List the named tokens of a user, oldest first, those that have expired too."""
    return wire.list_tokens(session.owner(user))


@app.shows(_fields)
def show(session: Session, name: TokenName, user: User = None) -> Call[wire.NamedToken]:
    """Show a named token without its text, which is shown only when the token is made."""
    return wire.get_token(session.owner(user), name)


@app.does()
def revoke(session: Session, name: TokenName, user: User = None) -> None:
    """Take a named token away: it is dead at once."""
    owner = session.owner(user)
    session.call(wire.revoke_token(owner, name))
    session.confirm(f"token {name} of {owner} revoked")


def _create_key(session: Session, wanted: Callable[..., Call[wire.NamedToken]], path: str) -> None:
    """Make a key pair, a token with the public key, and a file with the private key, the only copy."""
    project = session.project
    with secret_file(path, new=True) as keep:
        public, private = new_key()
        made = session.call(wanted(public_key=public))
        keep(service_account(project, made, private))
    session.show(made, _fields(made))
    note(f"the key is in {path}, for GOOGLE_APPLICATION_CREDENTIALS of programs")


def new_key() -> tuple[str, str]:
    """Make an RSA key; return its public half (SubjectPublicKeyInfo) and its private one (PKCS #8), both in PEM."""
    # Imported here: slow to load, and few commands need it.
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(65537, KEY_BITS)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    return public.decode(), private.decode()


def service_account(project: str, token: wire.NamedToken, private: str) -> str:
    """Return a service account file, as Google's libraries read it, of a token that was made with a public key."""
    return document(
        {
            "type": "service_account",
            "project_id": project,
            "private_key_id": token.key_id,
            "private_key": private,
            "client_email": token.client_email,
            "client_id": token.key_id,
            "auth_uri": f"{NOBODY}auth",
            "token_uri": f"{NOBODY}token",
            "universe_domain": "googleapis.com",
        }
    )


@with_options
def open_(
    session: Session,
    only_print: Annotated[bool, option("Print the address instead of opening a browser.", "--print")] = False,
    expires_in: Annotated[str, option("How long the browser stays logged in.", metavar="DURATION")] = "8h",
) -> None:
    """Open the console in a browser, logged in.

    Its token is a short-lived named one of yours, in the fragment of the address: a browser sends that to nobody, and
    the page erases it at once. "Log out" revokes it, as `ams token revoke` does.
    """
    seconds = whole_seconds(expires_in, f"--expires-in {expires_in!r} is no duration such as 8h or 30m")
    try:
        session.call(wire.get_console())
    except NotFound as error:
        raise NotFound(f"{session.client.endpoint} serves no console", error.code, error.status) from error
    user = session.owner(None)
    made = session.call(wire.create_token(user, f"console-{secrets.token_hex(4)}", expires_in=seconds))
    login = {"token": made.token, "name": made.name} | ({"project": session.at.project} if session.at.project else {})
    page = f"{session.client.endpoint}/console/"
    address = f"{page}#{urlencode(login)}"
    if only_print or not webbrowser.open(address):
        emit(address)
    else:
        note(f"opened {page} in the browser")
    note(f"the token {made.name} of {user} ends in {expires_in}: ams token revoke {made.name}")
