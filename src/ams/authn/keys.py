"""Named keys of the management interface: made, listed without their secrets, revoked (15, A15)."""

from collections.abc import Sequence

from ams.authn.rules import require_fields, require_name, require_supported
from ams.authn.store import Store
from ams.authn.values import READ, WRITE, Key
from ams.core.errors import NotFound
from ams.storage.secrets import new_token

WHAT = "key"


class Keys:
    """Keys by name."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> Sequence[Key]:
        """Return all keys, oldest first."""
        return await self._store.keys.all()

    async def create(self, name: str, scope: str | None) -> tuple[Key, str]:
        """Make a key; return it and its secret, which is shown this once. Raises `Unprocessable`, `AlreadyExists`."""
        require_fields(WHAT, [("name", name), ("scope", scope)])
        require_supported("scope", scope or "", (READ, WRITE))
        require_name(WHAT, name)
        made, secret = Key(name=name, scope=scope or "", created_on=self._store.clock.wall()), new_token()
        await self._store.keys.create(made, secret)
        return made, secret

    async def delete(self, name: str) -> None:
        """Revoke a key at once; raise `NotFound`."""
        if not await self._store.keys.delete(name):
            raise NotFound("Key was not found")
