"""`ams authn audit`: who did which change at the certificate service, and who logged in."""

from ams.cli.audit import Action, Actor, Address, OnlyResult, Since, Until, show_events
from ams.cli.authn.command import AuthnSession, with_authn
from ams.cli.paging import AllPages, PageSize, PageToken


@with_authn
def audit(
    session: AuthnSession,
    since: Since = "",
    until: Until = "",
    actor: Actor = "",
    action: Action = "",
    address: Address = "",
    result: OnlyResult = None,
    page_size: PageSize = 0,
    page_token: PageToken = "",
    every: AllPages = False,
) -> None:
    """Show who did which change and who logged in, newest first; for the management key. Times are UTC."""
    filters = {
        "since": since, "until": until, "actor": actor, "action": action, "address": address, "result": result or "",
    }  # fmt: skip
    show_events(session, filters, page_size, page_token, every)
