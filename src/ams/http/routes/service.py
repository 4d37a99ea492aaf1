"""How the service is, over HTTP: status and version (contract 14.5 and 14.6). Open; they check for themselves."""

import msgspec

from ams.http.routes import answers
from ams.http.routing import Call, Row
from ams.service.about import About


class PushServer(msgspec.Struct):
    """A push server and how it is: SERVING, NOT_SERVING, UNKNOWN, or what went wrong."""

    endpoint: str
    status: str


class Status(msgspec.Struct, omit_defaults=True):
    """How the service is (contract 14.5)."""

    status: str
    push_servers: list[PushServer] | msgspec.UnsetType = msgspec.UNSET
    push_functionality: str = ""


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
        """Return the rows of the route table."""
        return [
            Row("GET", "/status", None, self.status, answers=Status, parameters=("details",)),
            Row("GET", "/version", None, self.version, answers=Version),
        ]

    async def status(self, call: Call) -> bytes:
        """Whether all is well."""
        details = call.parameter("details") == "true"
        if details:
            await self._about.require_viewer(call.token)
        state = await self._about.status(details=details)
        if state.push_server is None:
            return msgspec.json.encode(Status(state.status, push_functionality="disabled"))
        server = PushServer(state.push_server.endpoint, state.push_server.status)
        return msgspec.json.encode(Status(state.status, [server]))

    async def version(self, call: Call) -> bytes:
        """What runs here."""
        return answers.encode(Version(**await self._about.version(call.token)))
