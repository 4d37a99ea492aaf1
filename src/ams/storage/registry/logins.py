"""Other ways to log in than own tokens: named tokens, and identities at issuers.

Only a hash of a named token is stored (docs/reference/tokens.md). A binding maps an identity at an issuer to a user
(docs/reference/openid-connect.md). An identity is the issuer's URL and a subject (OpenID Connect Core 1.0, 2), so
bindings survive the deletion of the issuer. Issuers here are those created over the API; their secrets are encrypted.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Insert, Row, delete, insert, select, update

from ams.core.clock import Milliseconds
from ams.core.errors import AlreadyExists, Damaged
from ams.core.issuer import Issuer
from ams.core.names import BindingName, IssuerName, TokenId, TokenName, UserId, UserName, new_uuid
from ams.core.public_keys import PublicKey
from ams.core.rights import Rights
from ams.core.versions import ANY_VERSION, Precondition
from ams.storage import export_format
from ams.storage.database.database import first
from ams.storage.database.invalidation import ISSUERS, PRINCIPAL, Cache, Invalidation
from ams.storage.database.schema import logger
from ams.storage.registry.records import Binding, KeyHolder, NamedToken, Principal, User, UserDetails
from ams.storage.registry.statements import Records, RegistryContext, Statement, existing, record, with_user_and_creator
from ams.storage.registry.tables import TAKEN, bindings, issuers, named_tokens, users
from ams.storage.registry.users import Roles, UserRecords, bound_principal, key_holder, put_memberships, roles_to_change
from ams.storage.secrets import Secrets, new_token, token_hash


class NamedTokenRecords(Records):
    """Named tokens by user and name; `UserRecords.principal` finds the user of a token."""

    async def create(
        self,
        user: UserId,
        name: TokenName,
        *,
        expires_on: Milliseconds | None,
        rights: Rights | None,
        created_by: UserId | None,
        key: PublicKey | None = None,
    ) -> tuple[NamedToken, str]:
        """Create a token; return it with its text, which is not stored, and empty if `key` is given.

        Raises `AlreadyExists` for a name of the user or a key of any token, `NotFound` for the user.
        """
        token, identity = new_token(), TokenId(new_uuid())
        row = insert(named_tokens).values(
            id=identity, user_id=user, name=name, rights=rights, created_on=self._clock.wall(),
            expires_on=expires_on, **key_columns(key), **sealed_columns(self._secrets, token_hash(token), identity),
            created_by=existing(created_by),
        )  # fmt: skip

        def work(connection: Connection) -> NamedToken:
            connection.execute(row)
            return _named_token(connection.execute(_TOKENS.where(named_tokens.c.id == identity)).one())

        return await self._database.write(work), token if key is None else ""

    async def holder(self, key: str) -> KeyHolder | None:
        """Return the holder of a key by its id, or None."""
        return await self._database.read(lambda connection: key_holder(connection, key))

    async def of(self, user: UserId) -> Sequence[NamedToken]:
        """Return the named tokens of a user, oldest first, including expired ones."""
        return await self._database.rows(_TOKENS.where(named_tokens.c.user_id == user), _named_token)

    async def find(self, user: UserId, name: TokenName) -> NamedToken | None:
        """Return a named token, or None."""
        return await self._database.row(_TOKENS.where(_is_token(user, name)), _named_token)

    async def revoke(self, user: UserId, name: TokenName) -> bool:
        """Delete a named token, invalid on return; return whether it existed."""
        removal = delete(named_tokens).where(_is_token(user, name))
        return await self._database.change(removal, Invalidation(PRINCIPAL, (user,)), grows=False) > 0

    async def note_uses(self, uses: Mapping[TokenId, Milliseconds]) -> None:
        """Store the last uses of tokens; the latest of all nodes wins. Skips deleted tokens."""
        if uses:
            rows = list(uses.items())
            await self._database.put(lambda connection: _NOTE_USES.run(connection, rows))


def sealed_columns(secrets: Secrets, hashed: str, identity: TokenId) -> dict[str, Any]:
    """Return the columns for a token with a hash of `ams.storage.secrets.token_hash`."""
    return {"digest": secrets.digest(hashed), "sealed": secrets.seal(hashed, identity)}


def key_columns(key: PublicKey | None) -> dict[str, str | None]:
    """Return the columns of a public key."""
    return {"public_key": key and key.pem, "key_id": key and key.id}


def hash_of(secrets: Secrets, row: Row[Any]) -> str:
    """Decrypt the token's hash in a row with its `user`. Raises `Damaged`."""
    damaged = f"the stored token {row.name} of user {row.user} is damaged; revoke it"
    return secrets.open(row.sealed, row.id, damaged)


_TOKENS = with_user_and_creator(named_tokens)
_NOTE_USES = Statement("""
    UPDATE named_tokens SET last_used = used.moment
    FROM (SELECT text(0) AS id, number(1) AS moment FROM {given}) AS used
    WHERE named_tokens.id = used.id AND (named_tokens.last_used IS NULL OR named_tokens.last_used < used.moment)
    """)


def _is_token(user: UserId, name: TokenName) -> ColumnElement[bool]:
    return (named_tokens.c.user_id == user) & (named_tokens.c.name == name)


def _named_token(row: Row[Any]) -> NamedToken:
    return record(NamedToken, row, created_by=row.creator)


FIRST_LOGIN = BindingName("first-login")  # name of the binding created with its user

_Identity = tuple[str, str]


class BindingRecords(Records):
    """Bindings by user and name, and by identity."""

    def __init__(self, shared: RegistryContext, made_users: UserRecords) -> None:
        super().__init__(shared)
        self._users = made_users
        invalidations = shared.database.invalidations
        self._principals: Cache[_Identity, tuple[Principal, bool]] = invalidations.new_cache()
        invalidations.on(PRINCIPAL, self._forget)

    def known_principal(self, issuer: str, subject: str) -> Principal | None:
        """Return the user bound to an identity from the cache only; on None ask `principal`."""
        bound = self._principals.find_cached((issuer, subject))
        return None if bound is None else bound[0]

    async def principal(self, issuer: str, subject: str) -> tuple[Principal, bool] | None:
        """Return the user bound to an identity and whether it was created at the first login, or None. Cached."""
        return await self._principals.find((issuer, subject), lambda: self._read_principal(issuer, subject))

    async def of(self, user: UserId) -> Sequence[Binding]:
        """Return the bindings of a user, oldest first."""
        return await self._database.rows(_BINDINGS.where(bindings.c.user_id == user), _binding)

    async def create(
        self, user: UserId, name: BindingName, issuer: str, subject: str, *, created_by: UserId | None
    ) -> Binding:
        """Bind a user to an identity. Raises `AlreadyExists` for a taken name or identity, `NotFound`."""

        def work(connection: Connection) -> Binding:
            connection.execute(self._row(user, name, (issuer, subject), created_by))
            query = _BINDINGS.where(bindings.c.user_id == user, bindings.c.name == name)
            return _binding(connection.execute(query).one())

        return await self._database.write(work)

    async def delete(self, user: UserId, name: BindingName) -> bool:
        """Delete a binding, invalid on return; return whether it existed."""
        removal = delete(bindings).where(bindings.c.user_id == user, bindings.c.name == name)
        return await self._database.change(removal, Invalidation(PRINCIPAL, (user,)), grows=False) > 0

    async def first_login(self, name: UserName, details: UserDetails, roles: Roles, issuer: str, subject: str) -> User:
        """Create a user with memberships and a binding, atomically; the user has no creator.

        Raises `AlreadyExists` for a bound identity, then for a taken name, `NotFound` for a deleted project.
        """
        creation = self._users.creation(name, details, roles, None)

        def work(connection: Connection) -> User:
            user = creation(connection)
            connection.execute(self._row(user.id, FIRST_LOGIN, (issuer, subject), None, by_login=True))
            return user

        try:
            return await self._database.write(work)
        except AlreadyExists as taken:
            if await self._read_principal(issuer, subject) is None:
                raise
            # A concurrent first login bound the identity, and took the name too.
            raise AlreadyExists(TAKEN["bindings_issuer_unique"]) from taken

    async def follow(self, user: UserId, roles: Roles) -> bool:
        """Set a user's roles in these projects; empty roles end the membership, other projects are unchanged.

        Returns whether anything changed. Raises `NotFound` for a deleted user or project.
        """
        if not await self._database.read(lambda connection: roles_to_change(connection, user, roles)):
            return False
        now = self._clock.wall()

        def work(connection: Connection) -> bool:
            changed = roles_to_change(connection, user, roles)
            put_memberships(connection, user, changed, self._quotas)
            if changed:
                connection.execute(update(users).where(users.c.id == user).values(modified_on=now))
            return bool(changed)

        return await self._database.write(work, Invalidation(PRINCIPAL, (user,)), grows=False)

    async def _read_principal(self, issuer: str, subject: str) -> tuple[Principal, bool] | None:
        try:
            (issuer + subject).encode()
        except UnicodeEncodeError:  # lone surrogates from JSON, which cannot be stored
            return None
        return await self._database.read(lambda connection: bound_principal(connection, issuer, subject))

    def _row(
        self, user: UserId, name: BindingName, identity: _Identity, created_by: UserId | None, *, by_login: bool = False
    ) -> Insert:
        return insert(bindings).values(
            user_id=user, name=name, issuer=identity[0], subject=identity[1], by_login=by_login,
            created_on=self._clock.wall(), created_by=existing(created_by),
        )  # fmt: skip

    def _forget(self, user: str) -> None:
        self._principals.forget_where(lambda _, bound: bound[0].id == user)


_BINDINGS = with_user_and_creator(bindings)


def _binding(row: Row[Any]) -> Binding:
    return record(Binding, row, created_by=row.creator)


_ALL_ISSUERS = ""
_ISSUERS_CHANGED = Invalidation(ISSUERS, ())
_COLUMNS = ("name", "url", "client_secret")  # of an issuer; its other fields are one text


class IssuerRecords(Records):
    """Issuers. All are cached, as they are few and needed for each new token."""

    def __init__(self, shared: RegistryContext) -> None:
        super().__init__(shared)
        self._all: Cache[str, Sequence[Issuer]] = shared.database.invalidations.new_cache(1)
        shared.database.invalidations.on(ISSUERS, lambda: self._all.forget(_ALL_ISSUERS))

    async def all(self) -> Sequence[Issuer]:
        """Return all issuers, oldest first, cached; a damaged secret is left out."""
        return await self._all.find(_ALL_ISSUERS, lambda: self._database.read(self._read_all)) or ()

    async def create(self, issuer: Issuer, created_by: UserId | None) -> None:
        """Create an issuer. Raises `AlreadyExists` for a taken name or URL."""
        identity, now = new_uuid(), self._clock.wall()
        row = insert(issuers).values(
            id=identity, created_on=now, modified_on=now, **columns(self._secrets, issuer, identity),
            created_by=existing(created_by),
        )  # fmt: skip
        await self._database.change(row, _ISSUERS_CHANGED)

    async def update(self, name: IssuerName, issuer: Issuer, expected: Precondition = ANY_VERSION) -> bool:
        """Replace an issuer; return whether it existed. Raises `AlreadyExists` for a taken name or URL."""
        now = self._clock.wall()

        def work(connection: Connection) -> bool:
            identity = connection.scalar(select(issuers.c.id).where(issuers.c.name == name))
            if identity is None:
                return False
            expected.check(lambda: self._find_named(connection, name))
            change = update(issuers).where(issuers.c.id == identity)
            change = change.values(modified_on=now, **columns(self._secrets, issuer, identity))
            return connection.execute(change).rowcount > 0  # another node may have deleted it meanwhile

        return await self._database.write(work, _ISSUERS_CHANGED)

    async def delete(self, name: IssuerName, expected: Precondition = ANY_VERSION) -> bool:
        """Delete an issuer, but not its bindings; return whether it existed."""
        removal = delete(issuers).where(issuers.c.name == name)

        def work(connection: Connection) -> bool:
            expected.check(lambda: self._find_named(connection, name))
            return connection.execute(removal).rowcount > 0

        return await self._database.write(work, _ISSUERS_CHANGED, grows=False)

    def _find_named(self, connection: Connection, name: IssuerName) -> Issuer | None:
        return first(connection, select(issuers).where(issuers.c.name == name), self._issuer)

    def _read_all(self, connection: Connection) -> Sequence[Issuer]:
        return tuple(self._issuer(row) for row in connection.execute(select(issuers).order_by(issuers.c.number)))

    def _issuer(self, row: Row[Any]) -> Issuer:
        try:
            secret = secret_of(row, self._secrets)
        except Damaged as error:  # a damaged secret must not disable the other issuers
            logger.error("issuer.secret_damaged", issuer=row.name, reason=error.message)
            secret = ""
        return msgspec.convert(fields_of(row, secret), Issuer)


def columns(secrets: Secrets, issuer: Issuer, identity: str) -> dict[str, Any]:
    """Return the columns of an issuer."""
    rest: Mapping[str, Any] = msgspec.to_builtins(issuer)
    secret = secrets.seal(issuer.client_secret, identity) if issuer.client_secret else None
    text = msgspec.json.encode({field: value for field, value in rest.items() if field not in _COLUMNS}).decode()
    return {"name": issuer.name, "url": issuer.url, "rest": text, "secret": secret}


def fields_of(row: Row[Any], secret: str) -> dict[str, Any]:
    """Return the fields of an issuer in a row, with this secret."""
    return {**msgspec.json.decode(row.rest), "name": row.name, "url": row.url, "client_secret": secret}


def issuer_on(line: export_format.Issuer) -> Issuer:
    """Return the issuer of an export line, not yet validated."""
    return msgspec.convert(msgspec.to_builtins(line), Issuer)


def secret_of(row: Row[Any], secrets: Secrets) -> str:
    """Decrypt the secret in a row; empty if it has none. Raises `Damaged`."""
    if row.secret is None:
        return ""
    return secrets.open(row.secret, row.id, f"the stored secret of issuer {row.name} is damaged; set it anew")
