"""The audit log over HTTP."""

from ams.http.routes import answers
from ams.http.routing import PAGE, Call, Row, page_request
from ams.storage.audit.event import Lines
from ams.storage.audit.records import FILTERS, AuditRecords, listing, wanted


class AuditRoutes:
    """The routes of the audit log."""

    def __init__(self, records: AuditRecords) -> None:
        self._records = records

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        return [Row("GET", "/audit", "audit:list", self.list, answers=Lines, parameters=(*FILTERS, *PAGE))]

    async def list(self, call: Call) -> bytes:
        """Answer who did which change, newest first."""
        page = page_request(call)
        asked = wanted({name: call.parameter(name) or "" for name in FILTERS})
        return answers.encode(await listing(self._records, asked, page.size, page.token))
