"""What the lines of an export may say of named tokens, bindings and issuers."""

from dataclasses import replace

from ams.core.errors import InvalidInput
from ams.core.issuer import checked as checked_issuer
from ams.core.names import checked_name
from ams.core.rights import checked as checked_rights
from ams.storage.export_format import Binding, Issuer, NamedToken
from ams.storage.registry.logins import issuer_on

_Name = tuple[str, str]
"""Of something of a user: the user's and its own."""
_LEFT_OUT = "left out"
"""Stands for the secret of an issuer in a file without secrets."""


class IdentityRules:
    """Judges these lines one after the other; each raises `InvalidInput` for one that cannot be."""

    def __init__(self) -> None:
        self.with_secrets = True
        """Whether the file says that secrets are in it."""
        self._tokens: set[_Name] = set()
        self._hashes: set[str] = set()
        self._bindings: set[_Name] = set()
        self._bound: set[tuple[str, str]] = set()
        self._issuers: set[str] = set()
        self._urls: set[str] = set()

    def see_named_token(self, line: NamedToken) -> None:
        """Judge a named token. Which actions there are is not known here: a right to none is of no use, and no harm."""
        _fresh("token", self._tokens, line.user, line.name)
        if line.hash in self._hashes:
            raise InvalidInput("a hash that another named token has")
        self._hashes.add(line.hash)
        if line.rights is not None:
            checked_rights(line.rights, {each.action for each in line.rights})

    def see_binding(self, line: Binding) -> None:
        """Judge a binding."""
        _fresh("binding", self._bindings, line.user, line.name)
        if not line.issuer or not line.subject:
            raise InvalidInput("a binding to no identity: issuer and subject say which")
        if (line.issuer, line.subject) in self._bound:
            raise InvalidInput("a second binding to the same identity")
        self._bound.add((line.issuer, line.subject))

    def see_issuer(self, line: Issuer) -> None:
        """Judge an issuer. Several may be asked about opaque tokens: those of settings may have taken one's place."""
        known = issuer_on(line)
        if not self.with_secrets and not known.client_secret:
            known = replace(known, client_secret=_LEFT_OUT)
        checked_issuer(known)
        if line.name in self._issuers:
            raise InvalidInput(f"a second issuer {line.name}")
        if line.url in self._urls:
            raise InvalidInput("a url that another issuer has")
        self._issuers.add(line.name)
        self._urls.add(line.url)


def _fresh(what: str, known: set[_Name], user: str, name: str) -> None:
    if (user, checked_name(what, name)) in known:
        raise InvalidInput(f"a second {what} {name} of user {user}")
    known.add((user, name))
