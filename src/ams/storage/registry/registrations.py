"""Registrations in the registry: people who asked to become users, and what was decided."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, delete, insert, select, update

from ams.core.clock import Clock
from ams.core.errors import AlreadyExists
from ams.core.names import RegistrationId, UserId, UserName, new_uuid
from ams.storage.database.database import Database
from ams.storage.registry.records import Applicant, Registration, User, UserDetails
from ams.storage.registry.tables import registrations, users
from ams.storage.registry.users import UserRecords
from ams.storage.secrets import new_token

FILTERS = ("status", "activation_token", "name", "email", "organization")
"""Columns a list may be cut by."""


class RegistrationRecords:
    """Registrations by identity."""

    def __init__(self, database: Database, clock: Clock, users: UserRecords) -> None:
        self._database = database
        self._clock = clock
        self._users = users

    async def find(self, registration: RegistrationId) -> Registration | None:
        """Return a registration, None when there is none."""
        return await self._database.read(lambda connection: _registration_where(connection, registrations.c.id == registration))

    async def all(self, filters: Mapping[str, str]) -> Sequence[Registration]:
        """Return the registrations whose columns (of `FILTERS`) have exactly these values, oldest first."""
        query = _REGISTRATIONS.where(*(registrations.c[column] == value for column, value in filters.items()))
        return await self._database.read(
            lambda connection: [
                _registration(row) for row in connection.execute(query.order_by(registrations.c.number))
            ]
        )

    async def create(self, applicant: Applicant) -> Registration:
        """Keep a new pending registration.

        Raises `AlreadyExists` when the name is a user's, or when another registration of it is pending (U5).
        """
        identity, now = RegistrationId(new_uuid()), self._clock.wall()
        row = insert(registrations).values(
            id=identity, status="pending", activation_token=new_token(), decline_comment="", registered_at=now,
            **asdict(applicant),
        )  # fmt: skip

        def work(connection: Connection) -> Registration | None:
            if connection.scalar(select(users.c.number).where(users.c.name == applicant.name)) is not None:
                raise AlreadyExists("User already exists")
            connection.execute(row)
            return _registration_where(connection, registrations.c.id == identity)

        made = await self._database.write(work)
        assert made is not None
        return made

    async def accept(self, registration: RegistrationId, decided_by: UserId | None) -> User | None:
        """Make the user a pending registration asks for, and decide it, in one step; None when none is pending.

        Raises `AlreadyExists` when the name is a user's by now; the registration then stays pending.
        """

        def work(connection: Connection) -> User | None:
            asked = _registration_where(connection, _pending(registration))
            if asked is None:
                return None
            connection.execute(self._decision(registration, decided_by, status="accepted"))
            make = self._users.creation(UserName(asked.applicant.name), _details(asked.applicant), {}, decided_by)
            return make(connection)

        return await self._database.write(work)

    async def decline(self, registration: RegistrationId, decided_by: UserId | None, comment: str) -> bool:
        """Refuse a pending registration; False when none is pending."""
        change = self._decision(registration, decided_by, status="declined", decline_comment=comment)
        return await self._database.write(lambda connection: connection.execute(change).rowcount) > 0

    async def delete(self, registration: RegistrationId) -> bool:
        """Forget a registration, decided or not; False when there is none."""
        removal = delete(registrations).where(registrations.c.id == registration)
        return await self._database.write(lambda connection: connection.execute(removal).rowcount) > 0

    def _decision(self, registration: RegistrationId, decided_by: UserId | None, **values: str) -> Any:
        decider = select(users.c.id).where(users.c.id == decided_by).scalar_subquery()
        values["activation_token"] = ""
        change = update(registrations).where(_pending(registration))
        return change.values(modified_at=self._clock.wall(), modified_by=decider, **values)


_DECIDER = users.alias("decider")
_REGISTRATIONS: Select[Any] = select(registrations, _DECIDER.c.name.label("decider")).outerjoin(
    _DECIDER, _DECIDER.c.id == registrations.c.modified_by
)


def _pending(registration: RegistrationId) -> ColumnElement[bool]:
    return (registrations.c.id == registration) & (registrations.c.status == "pending")


def _registration_where(connection: Connection, condition: ColumnElement[bool]) -> Registration | None:
    row = connection.execute(_REGISTRATIONS.where(condition)).first()
    return _registration(row) if row else None


def _registration(row: Row[Any]) -> Registration:
    return Registration(
        id=row.id,
        applicant=Applicant(row.name, row.email, row.first_name, row.last_name, row.organization, row.description),
        status=row.status,
        activation_token=row.activation_token,
        decline_comment=row.decline_comment,
        registered_at=row.registered_at,
        modified_at=row.modified_at,
        modified_by=row.decider,
    )


def _details(applicant: Applicant) -> UserDetails:
    return UserDetails(**asdict(applicant))
