"""How the service is, over HTTP: status and version (contract 14.5 and 14.6). Open; they check for themselves."""

import msgspec

from ams.http.routing import Call, Row
from ams.service import About


class ServiceRoutes:
    """Answers about the service."""

    def __init__(self, about: About) -> None:
        self._about = about

    def rows(self) -> list[Row]:
        """Return the room's part of the route table."""
        return [
            Row("GET", "/status", None, self.status),
            Row("GET", "/version", None, self.version),
        ]

    async def status(self, call: Call) -> bytes:
        """Whether all is well."""
        if call.parameter("details") == "true":
            await self._about.require_viewer(call.token)
        return msgspec.json.encode(self._about.status())

    async def version(self, call: Call) -> bytes:
        """What runs here."""
        return msgspec.json.encode(await self._about.version(call.token))
