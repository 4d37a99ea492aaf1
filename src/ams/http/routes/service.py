"""How the service is, over HTTP: status and version (contract 14.5 and 14.6). Open; they check for themselves."""

import msgspec

from ams.http.routes import answers
from ams.http.routing import Call, Row
from ams.service import About


class Version(msgspec.Struct, omit_defaults=True):
    """What runs here (contract 14.6); the release only for those who may see it."""

    build_time: str
    golang: str
    """The runtime's version, where the reference has that of Go."""
    compiler: str
    os: str
    architecture: str
    release: str = ""
    distro: str = ""
    hostname: str = ""


class ServiceRoutes:
    """Answers about the service."""

    def __init__(self, about: About) -> None:
        self._about = about

    def rows(self) -> list[Row]:
        """Return the room's part of the route table."""
        return [
            Row("GET", "/status", None, self.status),
            Row("GET", "/version", None, self.version, answers=Version),
        ]

    async def status(self, call: Call) -> bytes:
        """Whether all is well."""
        if call.parameter("details") == "true":
            await self._about.require_viewer(call.token)
        return msgspec.json.encode(self._about.status())

    async def version(self, call: Call) -> bytes:
        """What runs here."""
        return answers.encode(Version(**await self._about.version(call.token)))
