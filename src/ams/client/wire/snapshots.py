"""Calls about snapshots of where parallel subscriptions stand (contract 19.3)."""

from ams.client.wire.call import Call, json_body, nothing, page, reader, segment, snapshots_path
from ams.wire.subscriptions import NewSnapshot, Snapshot, Snapshots


def list_snapshots(project: str, *, page_size: int = 0, page_token: str = "") -> Call[Snapshots]:
    """Ask for the snapshots of a project."""
    return Call("GET", snapshots_path(project), reader(Snapshots), query=page(page_size, page_token))


def get_snapshot(project: str, snapshot: str) -> Call[Snapshot]:
    """Ask for one snapshot; `NotFound` when it has expired."""
    return Call("GET", snapshots_path(project, snapshot), reader(Snapshot))


def create_snapshot(project: str, snapshot: str, subscription: str) -> Call[Snapshot]:
    """Remember where a parallel subscription of the project stands."""
    body = json_body(NewSnapshot(segment("subscription", subscription)))
    return Call("PUT", snapshots_path(project, snapshot), reader(Snapshot), body)


def delete_snapshot(project: str, snapshot: str) -> Call[None]:
    """Remove a snapshot."""
    return Call("DELETE", snapshots_path(project, snapshot), nothing)
