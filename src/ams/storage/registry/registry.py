"""The interface of the registry: one database and cache, with a part for each kind of record."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Self, TypeVar

from sqlalchemy import Connection

from ams.core.clock import Clock, SystemClock
from ams.core.errors import RegistryUnavailable
from ams.core.quotas import Quotas
from ams.core.retention_clock import RetentionClock
from ams.storage.audit.records import AuditRecords
from ams.storage.database.database import open_database
from ams.storage.export_format import Line
from ams.storage.free_space import UNLIMITED, FreeSpace
from ams.storage.registry.counts import FigureRecords, TallyRecords
from ams.storage.registry.export import Contents, Loaded, Name, RegistryImport, Standings, empty
from ams.storage.registry.idempotency import IdempotencyRecords
from ams.storage.registry.logins import BindingRecords, IssuerRecords, NamedTokenRecords
from ams.storage.registry.policies import PolicyRecords
from ams.storage.registry.projects import ProjectRecords, QuotaRecords
from ams.storage.registry.push import PushedRecords, PushSecretRecords
from ams.storage.registry.resources import SubscriptionRecords, TopicRecords
from ams.storage.registry.schemas import SchemaRecords
from ams.storage.registry.signing_keys import SigningKeyRecords, encrypt_anew
from ams.storage.registry.snapshots import SnapshotRecords
from ams.storage.registry.statements import RegistryContext
from ams.storage.registry.tables import REGISTRY, audit
from ams.storage.registry.users import RegistrationRecords, UserRecords
from ams.storage.secrets import Secrets

T = TypeVar("T")


class Registry:
    """All records. Calls raise `RegistryUnavailable` if the database does not answer."""

    def __init__(self, shared: RegistryContext) -> None:
        self._database, self._secrets, self._clock = shared.database, shared.secrets, shared.clock
        self.shared, self.quotas, self.invalidations = shared, shared.quotas, shared.database.invalidations
        self.users = UserRecords(shared)
        self.named_tokens = NamedTokenRecords(shared)
        self.bindings = BindingRecords(shared, self.users)
        self.issuers = IssuerRecords(shared)
        self.topics = TopicRecords(shared)
        self.schemas = SchemaRecords(shared)
        self.subscriptions = SubscriptionRecords(shared)
        self.snapshots = SnapshotRecords(shared)
        self.policies = PolicyRecords(shared)
        self.pushed = PushedRecords(shared)
        self.push_secrets = PushSecretRecords(shared)
        self.signing_keys = SigningKeyRecords(shared)
        self.projects = ProjectRecords(shared)
        self.registrations = RegistrationRecords(shared, self.users)
        self.tallies = TallyRecords(shared)
        self.figures = FigureRecords(shared)
        self.idempotency = IdempotencyRecords(shared)
        self.audit = AuditRecords(shared.database, audit)

    @classmethod
    async def open(
        cls,
        url: str,
        key: bytes,
        *,
        password: str = "",
        clock: Clock | None = None,
        space: FreeSpace = UNLIMITED,
        quotas: Quotas | None = None,
        retention_clock: RetentionClock | None = None,
    ) -> Self:
        """Open the database at `url` and create or migrate its tables; `key` (32 bytes) encrypts the tokens.

        Snapshots and idempotency keys expire by `retention_clock` (None: its own).
        Raises `Unusable` for a foreign database or another key, `RegistryUnavailable` if PostgreSQL does not answer.
        """
        secrets = Secrets(key)
        database = await open_database(url, REGISTRY, secrets.fingerprint, password=password, space=space)
        clock = clock or SystemClock()
        retention_clock = retention_clock or RetentionClock(clock)
        records = QuotaRecords(database, quotas or Quotas())
        return cls(RegistryContext(database, secrets, clock, retention_clock, records))

    @property
    def away(self) -> str | None:
        """Known reason why the registry is unavailable, or None."""
        return self._database.away

    async def is_empty(self) -> bool:
        """Return whether the registry has neither users nor topics: it is new or was lost."""
        return not await self.users.exist() and not await self.topics.ids()

    async def change_key(self, key: bytes) -> int:
        """Encrypt all tokens with another key (32 bytes), atomically; return their number. Then close this registry.

        Raises `Unusable` while another service uses this registry, `Damaged` for an unreadable token.
        """
        new = Secrets(key)
        return await self._database.alone(lambda connection: encrypt_anew(connection, self._secrets, new))

    async def export_lines(self, take: Callable[[Iterator[Line]], T], standings: Standings, *, with_secrets: bool) -> T:
        """Pass all records to `take` as export lines, on a thread. No process may change the registry meanwhile.

        `standings` are the cursors of the subscriptions. Raises `Damaged` for an unreadable token, if `with_secrets`.
        """
        secrets = self._secrets if with_secrets else None
        return await self._database.run_long(lambda connection: take(Contents(connection, secrets, standings).lines()))

    async def fill(
        self, lines: Iterable[Line], logs: Mapping[Name, Loaded], finish: Callable[[RegistryImport], None]
    ) -> None:
        """Add export lines atomically, on a thread, after their `logs`; `finish` is called before the commit."""
        given, now = iter([lines]), self._clock.wall()

        def work(connection: Connection) -> None:
            once = next(given, None)
            if once is None:  # a retry, such as after a full disk, cannot read the lines again
                raise RegistryUnavailable
            filling = RegistryImport(connection, self._secrets, now, logs)
            for line in once:
                filling.add(line)
            finish(filling)

        await self._database.run_long(work)

    async def clear(self) -> None:
        """Delete all that `fill` stores, in one transaction. Raises `Unusable` while another process serves it."""
        await self._database.alone(empty)

    async def close(self) -> None:
        """Finish accepted work and close the database."""
        await self._database.close()
