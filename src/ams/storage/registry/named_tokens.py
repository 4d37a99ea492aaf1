"""Named tokens in the registry: known by a hash, so that their texts are nowhere (docs/reference/tokens.md)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, insert, select

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import Damaged
from ams.core.names import TokenId, TokenName, UserId, new_uuid
from ams.core.rights import Right, Rights
from ams.storage.database.database import Database
from ams.storage.database.invalidation import PRINCIPAL, Forget
from ams.storage.registry.given import ByRows
from ams.storage.registry.records import NamedToken
from ams.storage.registry.tables import named_tokens, users
from ams.storage.secrets import Secrets, new_token, token_hash


class NamedTokenRecords:
    """Named tokens by user and name; `UserRecords.principal` finds whom one stands for."""

    def __init__(self, database: Database, secrets: Secrets, clock: Clock) -> None:
        self._database = database
        self._secrets = secrets
        self._clock = clock

    async def create(
        self,
        user: UserId,
        name: TokenName,
        *,
        expires_on: Milliseconds | None,
        rights: Rights | None,
        created_by: UserId | None,
    ) -> tuple[NamedToken, str]:
        """Make a token of a user; return it with its text, which nobody can ask for again.

        Raises `AlreadyExists` when the user has one of this name, `NotFound` when the user is gone.
        """
        token, identity = new_token(), TokenId(new_uuid())
        row = insert(named_tokens).values(
            id=identity, user_id=user, name=name, rights=rights_written(rights), created_on=self._clock.wall(),
            expires_on=expires_on, **sealed(self._secrets, token_hash(token), identity),
            created_by=select(users.c.id).where(users.c.id == created_by).scalar_subquery(),
        )  # fmt: skip

        def work(connection: Connection) -> NamedToken | None:
            connection.execute(row)
            return _token_where(connection, named_tokens.c.id == identity)

        made = await self._database.write(work)
        assert made is not None
        return made, token

    async def of(self, user: UserId) -> Sequence[NamedToken]:
        """Return the named tokens of a user, oldest first, those that have expired too."""
        query = _TOKENS.where(named_tokens.c.user_id == user)
        return await self._database.read(lambda connection: [_named_token(row) for row in connection.execute(query)])

    async def find(self, user: UserId, name: TokenName) -> NamedToken | None:
        """Return a named token, None when there is none."""
        return await self._database.read(lambda connection: _token_where(connection, _is_token(user, name)))

    async def revoke(self, user: UserId, name: TokenName) -> bool:
        """Remove a named token: it is dead when this returns. False when it is gone already."""
        removal = delete(named_tokens).where(_is_token(user, name))
        forget = Forget(PRINCIPAL, (user,))
        return await self._database.write(lambda connection: connection.execute(removal).rowcount, forget) > 0

    async def note_uses(self, uses: Mapping[TokenId, Milliseconds]) -> None:
        """Keep when tokens were last used, each the latest that anybody told; those that are gone are passed over."""
        rows = list(uses.items())
        if rows:
            await self._database.put(lambda connection: _NOTE_USES.run(connection, rows))


def sealed(secrets: Secrets, hashed: str, identity: TokenId) -> dict[str, Any]:
    """Return the columns by which a token is known, from its hash as `ams.storage.secrets.token_hash` gives it."""
    return {"digest": secrets.digest(hashed), "sealed": secrets.seal(hashed, identity)}


def hash_of(secrets: Secrets, row: Row[Any]) -> str:
    """Return the hash that a row with the name of its `user` holds; raise `Damaged` when it cannot be read."""
    try:
        return secrets.open(row.sealed, row.id)
    except Damaged:
        raise Damaged(f"the stored token {row.name} of user {row.user} is damaged; revoke it") from None


def rights_written(rights: Rights | None) -> str | None:
    """Write a column of rights; None: all the user's."""
    return None if rights is None else json.dumps(rights)


def rights_read(text: str | None) -> Rights | None:
    """Read a column of rights."""
    return None if text is None else tuple(Right(action, resource) for action, resource in json.loads(text))


_CREATOR = users.alias("creator")
_TOKENS: Select[Any] = (
    select(named_tokens, users.c.name.label("user"), _CREATOR.c.name.label("creator"))
    .join(users, users.c.id == named_tokens.c.user_id)
    .outerjoin(_CREATOR, _CREATOR.c.id == named_tokens.c.created_by)
    .order_by(named_tokens.c.number)
)
_NOTE_USES = ByRows(
    """
    UPDATE named_tokens SET last_used = used.moment
    FROM (SELECT text(0) AS id, number(1) AS moment FROM {given}) AS used
    WHERE named_tokens.id = used.id AND (named_tokens.last_used IS NULL OR named_tokens.last_used < used.moment)
    """
)


def _is_token(user: UserId, name: TokenName) -> ColumnElement[bool]:
    return (named_tokens.c.user_id == user) & (named_tokens.c.name == name)


def _token_where(connection: Connection, condition: ColumnElement[bool]) -> NamedToken | None:
    row = connection.execute(_TOKENS.where(condition)).first()
    return _named_token(row) if row else None


def _named_token(row: Row[Any]) -> NamedToken:
    return NamedToken(
        id=row.id, user=row.user, name=row.name, created_on=row.created_on, created_by=row.creator,
        expires_on=row.expires_on, last_used=row.last_used, rights=rights_read(row.rights),
    )  # fmt: skip
