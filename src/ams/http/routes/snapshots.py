"""Snapshots over HTTP (contract 19.3)."""

from ams.core.clock import resource_date
from ams.core.errors import InvalidInput
from ams.core.names import SnapshotName, snapshot_path, topic_path
from ams.http.bodies import Reader
from ams.http.routes import answers
from ams.http.routing import PAGE, Call, Row, page_request
from ams.service import seeking
from ams.storage.registry import records
from ams.wire.parallel import NewSnapshot, Snapshot, Snapshots

_create = Reader(NewSnapshot, lambda: InvalidInput("Invalid Snapshot Arguments"))


class SnapshotRoutes:
    """The routes of snapshots."""

    def __init__(self, snapshots: seeking.Snapshots) -> None:
        self._snapshots = snapshots

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        every = "/projects/{project}/snapshots"
        one = every + "/{snapshot}"
        return [
            Row("GET", every, "snapshots:list", self.list, answers=Snapshots, parameters=PAGE),
            Row("GET", one, "snapshots:show", self.show, answers=Snapshot),
            Row("PUT", one, "snapshots:create", self.create, reads=NewSnapshot, answers=Snapshot),
            Row("DELETE", one, "snapshots:delete", self.delete),
        ]

    async def list(self, call: Call) -> bytes:
        """Answer a page of snapshots."""
        page = await self._snapshots.list(call.caller, page_request(call))
        project = call.caller.here.name
        return await answers.encode_page(Snapshots, "snapshots", page, lambda each: _shown(project, each))

    async def show(self, call: Call) -> bytes:
        """Answer a snapshot; here alone with what retention has taken of it."""
        found, lost = await self._snapshots.show(call.caller, _name(call))
        return answers.encode(_shown(call.caller.here.name, found, lost))

    async def create(self, call: Call) -> bytes:
        """Remember where a parallel subscription stands."""
        wanted = _create.read(await call.body())
        made = await self._snapshots.create(call.caller, _name(call), wanted.subscription or "")
        return answers.encode(_shown(call.caller.here.name, made))

    async def delete(self, call: Call) -> bytes:
        """Delete a snapshot."""
        await self._snapshots.delete(call.caller, _name(call))
        return answers.EMPTY


def _name(call: Call) -> SnapshotName:
    return SnapshotName(call.names["snapshot"])


def _shown(project: str, snapshot: records.Snapshot, lost: int | None = None) -> Snapshot:
    return Snapshot(
        name=snapshot_path(project, snapshot.name),
        topic=topic_path(project, snapshot.topic),
        created_on=resource_date(snapshot.created_on),
        expire_time=resource_date(snapshot.expires_on),
        lost=lost,
    )
