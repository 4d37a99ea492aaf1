"""`ams authn audit`: who changed what in the certificate service, and who logged in."""

from ams.cli.audit import Action, Actor, Address, File, OnlyResult, Since, Until, show
from ams.cli.authn.command import with_authn
from ams.cli.command import Session
from ams.cli.paging import AllPages, PageSize, PageToken


@with_authn
def audit(
    session: Session,
    since: Since = "",
    until: Until = "",
    actor: Actor = "",
    action: Action = "",
    address: Address = "",
    result: OnlyResult = None,
    file: File = "",
    page_size: PageSize = 0,
    page_token: PageToken = "",
    every: AllPages = False,
) -> None:
    """Show who did which change, and who logged in or failed to, newest first. Times are UTC.

    It takes the management key, or a service_admin's token. A file (authn-audit.jsonl) is read from its beginning,
    oldest first, also while no service runs; its lines are JSON with -o json.
    """
    filters = {
        "since": since, "until": until, "actor": actor, "action": action, "address": address, "result": result or "",
    }  # fmt: skip
    show(session, filters, file, page_size, page_token, every)
