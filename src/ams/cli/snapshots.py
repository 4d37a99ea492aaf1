"""`ams snapshots`: where parallel subscriptions stood."""

from typing import Annotated

from ams.cli.arguments import SubscriptionName, argument
from ams.cli.command import Group, Page, Session
from ams.cli.completing import snapshot_names
from ams.cli.output import short_name
from ams.client import wire
from ams.client.wire import Call

app = Group("ams snapshots create before-upgrade workers", "ams snapshots list")

SnapshotName = Annotated[str, argument("SNAPSHOT", "Name of the snapshot.", snapshot_names)]


def _fields(snapshot: wire.Snapshot) -> dict[str, str]:
    return {
        "snapshot": short_name(snapshot.name),
        "topic": short_name(snapshot.topic),
        "created": snapshot.created_on,
        "expires": snapshot.expire_time,
    }


@app.shows(_fields)
def create(session: Session, snapshot: SnapshotName, subscription: SubscriptionName) -> Call[wire.Snapshot]:
    """Remember where a parallel subscription stands."""
    return wire.create_snapshot(session.project, snapshot, subscription)


@app.lists(
    "snapshots",
    {
        "SNAPSHOT": lambda each: short_name(each.name),
        "TOPIC": lambda each: short_name(each.topic),
        "CREATED": "created_on",
        "EXPIRES": "expire_time",
    },
)
def list_(session: Session, page: Page) -> Call[wire.Snapshots]:
    """List the snapshots of the project, newest first."""
    return wire.list_snapshots(session.project, **page.query)


@app.shows(_fields)
def show(session: Session, snapshot: SnapshotName) -> Call[wire.Snapshot]:
    """Show one snapshot."""
    return wire.get_snapshot(session.project, snapshot)


@app.confirms("snapshot {snapshot} deleted")
def delete(session: Session, snapshot: SnapshotName) -> Call[None]:
    """Remove a snapshot."""
    return wire.delete_snapshot(session.project, snapshot)
