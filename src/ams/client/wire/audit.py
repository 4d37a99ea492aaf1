"""Calls about the audit log: who did which change, of AMS and of the certificate service alike."""

from ams.client.wire.call import Call, page, reader
from ams.client.wire.values import AuditEvents

_events = reader(AuditEvents)


def list_events(
    *,
    since: str = "",
    until: str = "",
    actor: str = "",
    action: str = "",
    address: str = "",
    result: str = "",
    page_size: int = 0,
    page_token: str = "",
) -> Call[AuditEvents]:
    """Ask for events, newest first: those that have all that is given; `action` is what theirs begins with.

    A page has at most 1000 of them, and 100 when nobody says how many.
    """
    said = {"since": since, "until": until, "actor": actor, "action": action, "address": address, "result": result}
    query = {name: value for name, value in said.items() if value}
    return Call("GET", "/v1/audit", _events, query=query | page(page_size, page_token))
