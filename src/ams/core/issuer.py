"""An issuer whose tokens are accepted, and the file of issuers that the setting `issuers_file` names.

    [[issuer]]
    name = "egi"
    url = "https://aai.egi.eu/auth/realms/egi"
    audiences = ["ams"]
    create_users = true

      [[issuer.roles]]
      entitlement = "urn:mace:egi.eu:group:monitoring.egi.eu:role=publisher"
      project = "MONITORING"
      roles = ["publisher"]

Fields are those of `Issuer` and `RoleRule`.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from ams.core.clock import Milliseconds
from ams.core.errors import BadSettings, InvalidInput, refuse_if
from ams.core.names import IssuerName, checked_name, is_name
from ams.core.urls import is_http_url

Introspect = Literal["never", "opaque", "always"]
"""Tokens that are checked by introspection at the issuer: none, those that are no JWT, or all."""

MAX_NAME_LENGTH = 100  # characters; a prefix of the names of users created at their first login
MAX_URL_LENGTH = 2000
MAX_TEXT_LENGTH = 255  # characters of an audience, a client, the name of a claim
MAX_SECRET_LENGTH = 1000
MAX_RULES = 100
MAX_TEXTS = 100  # audiences, and clients
MAX_CLAIMS = 10

ROLES = frozenset({"project_admin", "publisher", "consumer"})
"""Roles that a rule may give: those of projects (`ams.access.permissions`), never one of the service."""

ENTITLEMENT_CLAIMS = ("entitlements", "eduperson_entitlement")
"""Claims that hold entitlements: that of RFC 9068 and AARC-G069, and the older one of eduPerson."""
MAX_ENTITLEMENT_LENGTH = 2000  # characters; a longer text is no entitlement

_ROLE = "role="
_NID = r"[A-Za-z0-9][A-Za-z0-9-]{0,30}[A-Za-z0-9]"
_CHARACTERS = r"A-Za-z0-9._~!$&'()*+,;=@/-"
_PART = rf"(?:[{_CHARACTERS}]|%[0-9A-Fa-f]{{2}})+"
_URN = re.compile(rf"[uU][rR][nN]:{_NID}(?::{_PART})+")
_AUTHORITY = re.compile(rf"(?:[{_CHARACTERS}:?]|%[0-9A-Fa-f]{{2}})+")
_PERCENT_ENCODED = re.compile("%..")
_FIRST_GROUP_PART = 3  # after `urn`, the NID and the delegated part, which may also be `group`

T = TypeVar("T")


class Entitlement(NamedTuple):
    """A group membership in the normal form of AARC-G069; equal entitlements compare equal.

        <NAMESPACE>:group:<GROUP>[:<SUBGROUP>*][:role=<ROLE>][#<AUTHORITY>]

    The namespace is a URN's, `urn:NID:DELEGATED[:SUBNAMESPACE*]`, in lower case; percent-encodings are in upper case
    (RFC 8141, 3.1), and nothing is decoded. Subgroups go from the outer to the inner, and the role is one in the
    innermost. The authority says who keeps the group; the guideline has deprecated it.
    """

    namespace: str
    groups: tuple[str, ...]  # the group, and its subgroups from the outer to the inner; percent-encoded
    role: str | None = None  # in the innermost group; None: not said
    authority: str | None = None  # None: not said

    def implied_entitlements(self) -> Iterator["Entitlement"]:
        """Yield this entitlement with and without its authority and role.

        A member of a subgroup is not a member of its parent group: issuers list each membership.
        """
        for role in {self.role, None}:
            for authority in {self.authority, None}:
                yield self._replace(role=role, authority=authority)


def read_entitlement(text: str) -> Entitlement | None:
    """Parse an entitlement; None if it is malformed."""
    name, mark, authority = text.partition("#")
    if len(text) > MAX_ENTITLEMENT_LENGTH or not _URN.fullmatch(name) or (mark and not _AUTHORITY.fullmatch(authority)):
        return None
    parts = name.split(":")
    if "group" not in parts[_FIRST_GROUP_PART:]:
        return None
    place = parts.index("group", _FIRST_GROUP_PART)
    groups = [_normal_part(part) for part in parts[place + 1 :]]
    role = groups.pop().removeprefix(_ROLE) if groups and groups[-1].startswith(_ROLE) else None
    if not groups or role == "" or any(group.startswith(_ROLE) for group in groups):
        return None
    return Entitlement(":".join(parts[:place]).lower(), tuple(groups), role, _normal_part(authority) if mark else None)


def _normal_part(part: str) -> str:
    return _PERCENT_ENCODED.sub(lambda encoded: encoded[0].upper(), part)


@dataclass(frozen=True, slots=True)
class RoleRule:
    """Gives roles in a project to the holders of an entitlement."""

    entitlement: str  # in the form of AARC-G069, `urn:NAMESPACE:group:GROUP[:role=ROLE][#AUTHORITY]`
    project: str
    roles: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Issuer:
    """An issuer, and requirements for its tokens (docs/reference/openid-connect.md)."""

    name: IssuerName
    url: str  # exactly as tokens say it in `iss`
    audiences: tuple[str, ...] = ()  # one of them must be in `aud`
    clients: tuple[str, ...] = ()  # one of them must be `azp` or `client_id`; audiences, clients or both must be given
    jwks_url: str = ""  # empty: as discovery says
    introspect: Introspect = "never"
    introspection_url: str = ""  # empty: as discovery says
    client_id: str = ""  # client id for requests to the introspection endpoint
    client_secret: str = field(default="", repr=False)
    create_users: bool = False  # at the first login of an unbound identity whose entitlements give a role
    entitlement_claims: tuple[str, ...] = ENTITLEMENT_CLAIMS
    roles: tuple[RoleRule, ...] = ()

    @property
    def takes_opaque(self) -> bool:
        """Return whether this issuer introspects opaque tokens; at most one issuer may."""
        return self.introspect != "never"


@dataclass(frozen=True, slots=True)
class Verified:
    """Claims of a verified token."""

    issuer: IssuerName
    url: str
    subject: str
    expires_on: Milliseconds  # when the token expires or must be verified again
    entitlements: tuple[str, ...] = ()  # those that meet a rule of the issuer's
    email: str = ""
    first_name: str = ""
    last_name: str = ""


def read_issuer(values: Mapping[str, object]) -> Issuer:
    """Convert a mapping of field names to an issuer. Raises `InvalidInput`."""
    _check_fields(values, Issuer)
    rules = values.get("roles")
    for rule in rules if isinstance(rules, list | tuple) else ():
        if isinstance(rule, Mapping):  # other types are reported by msgspec below
            _check_fields(rule, RoleRule)
    try:
        return validate(msgspec.convert(values, Issuer))
    except UnicodeError:  # a lone surrogate from JSON in a Literal field
        raise InvalidInput("An issuer cannot be read: it has text that is no Unicode") from None
    except msgspec.ValidationError as error:
        raise InvalidInput(f"An issuer cannot be read: {error}") from None


def validate(issuer: Issuer) -> Issuer:
    """Validate an issuer and remove duplicates from its lists; http URLs are allowed. Raises `InvalidInput`."""
    refuse_if(len(checked_name("issuer", issuer.name)) > MAX_NAME_LENGTH, "Invalid issuer name")
    if not _is_url(issuer.url) or "?" in issuer.url:
        raise InvalidInput("An issuer's url is https://HOST or https://HOST/PATH, exactly as its tokens say it")
    for name, url in (("jwks_url", issuer.jwks_url), ("introspection_url", issuer.introspection_url)):
        refuse_if(url and not _is_url(url), f"An issuer's {name} is an https or http URL")
    _check_texts("audiences", issuer.audiences, MAX_TEXTS)
    _check_texts("clients", issuer.clients, MAX_TEXTS)
    _check_texts("entitlement_claims", issuer.entitlement_claims, MAX_CLAIMS)
    if not issuer.audiences and not issuer.clients:
        raise InvalidInput("An issuer needs audiences or clients: else its tokens for other services would do here")
    _check_introspection(issuer)
    refuse_if(len(issuer.roles) > MAX_RULES, f"An issuer has at most {MAX_RULES} rules for roles")
    for rule in issuer.roles:
        _check_rule(rule)
    if issuer.create_users and not (issuer.roles and issuer.entitlement_claims):
        raise InvalidInput("An issuer with create_users needs rules for roles: who has no role becomes no user")
    return replace(
        issuer,
        audiences=_unique(issuer.audiences),
        clients=_unique(issuer.clients),
        entitlement_claims=_unique(issuer.entitlement_claims),
        roles=_unique(replace(rule, roles=_unique(rule.roles)) for rule in issuer.roles),
    )


def check_together(issuers: Iterable[Issuer]) -> None:
    """Raise `InvalidInput` unless names and URLs are unique, and at most one issuer takes opaque tokens."""
    names: set[str] = set()
    urls: set[str] = set()
    opaque = ""
    for issuer in issuers:
        refuse_if(issuer.name in names, f"Two issuers are named {issuer.name}")
        refuse_if(issuer.url in urls, f"Two issuers have the url {issuer.url}")
        if issuer.takes_opaque and opaque:
            raise InvalidInput(f"Two issuers would be asked about opaque tokens: {opaque} and {issuer.name}")
        names.add(issuer.name)
        urls.add(issuer.url)
        opaque = issuer.name if issuer.takes_opaque else opaque


def read_issuers(path: str) -> tuple[Issuer, ...]:
    """Read a file of issuers. Raises `BadSettings`, which names the file and the issuer."""
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise BadSettings(f"issuers_file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadSettings(f"issuers_file {path}: it is no text in UTF-8") from error
    except (ValueError, RecursionError) as error:  # tomllib raises ValueError
        raise BadSettings(f"issuers_file {path}: {error}") from error
    tables = table.get("issuer", [])
    if set(table) - {"issuer"} or not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise BadSettings(f"issuers_file {path}: it has tables [[issuer]], and nothing else")
    issuers = []
    for number, values in enumerate(tables, 1):
        try:
            issuers.append(read_issuer(values))
        except InvalidInput as error:
            name = values.get("name")
            which = name if isinstance(name, str) and name.isprintable() else number
            raise BadSettings(f"issuers_file {path}: issuer {which}: {error.message}") from None
    try:
        check_together(issuers)
    except InvalidInput as error:
        raise BadSettings(f"issuers_file {path}: {error.message}") from None
    return tuple(issuers)


def _check_fields(values: Mapping[str, object], kind: type[Issuer | RoleRule]) -> None:
    known = {each.name for each in fields(kind)}
    if unknown := sorted(set(values) - known):
        raise InvalidInput(f"An issuer has no {unknown[0]!r}: what there is, is {', '.join(sorted(known))}")


def _check_introspection(issuer: Issuer) -> None:
    if len(issuer.client_id) > MAX_TEXT_LENGTH or not issuer.client_id.isprintable():
        raise InvalidInput(f"An issuer's client_id has at most {MAX_TEXT_LENGTH} printable characters")
    if len(issuer.client_secret) > MAX_SECRET_LENGTH or not issuer.client_secret.isprintable():
        raise InvalidInput(f"An issuer's client_secret has at most {MAX_SECRET_LENGTH} printable characters")
    if issuer.introspect not in ("never", "opaque", "always"):
        raise InvalidInput("An issuer's introspect is never, opaque or always")
    if issuer.introspect != "never" and not (issuer.client_id and issuer.client_secret):
        raise InvalidInput("An issuer that is asked about tokens needs a client_id and a client_secret to ask with")


def _check_rule(rule: RoleRule) -> None:
    if read_entitlement(rule.entitlement) is None:
        raise InvalidInput(
            f"invalid entitlement: {rule.entitlement[:MAX_TEXT_LENGTH]!r} is not urn:NID:NAMESPACE:group:GROUP"
            "[:SUBGROUP][:role=ROLE][#AUTHORITY]"
        )
    refuse_if(not is_name(rule.project), "Invalid project name")
    refuse_if(not rule.roles, f"A rule for roles in {rule.project} has none")
    for role in rule.roles:
        shown = f"invalid role: {role[:MAX_TEXT_LENGTH]}" if role.isprintable() else "invalid role"
        refuse_if(role not in ROLES, shown)


def _check_texts(what: str, texts: tuple[str, ...], most: int) -> None:
    refuse_if(len(texts) > most, f"An issuer has at most {most} {what}")
    if not all(text and len(text) <= MAX_TEXT_LENGTH and text.isprintable() for text in texts):
        raise InvalidInput(f"An issuer's {what} have 1 to {MAX_TEXT_LENGTH} printable characters each")


def _is_url(url: str) -> bool:
    """Return whether this is an absolute http or https URL without credentials and fragment, unambiguous to parsers."""
    if len(url) > MAX_URL_LENGTH or not url.isascii() or not url.isprintable() or set(url) & set(" \\#"):
        return False
    try:
        return is_http_url(url) and urlsplit(url).port != 0
    except ValueError:  # a port that is no number
        return False


def _unique(texts: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(texts))
