"""The service about itself: status and version (contract 14.5 and 14.6)."""

import platform
from dataclasses import dataclass

import ams
from ams.access.admission import Admission, is_good_for
from ams.access.permissions import ADMIN_VIEWER, SERVICE_ADMIN
from ams.core.errors import NotAllowed, NotAuthenticated, RegistryUnavailable
from ams.service.push.pushing import Pushing
from ams.storage.registry.records import Principal
from ams.storage.registry.registry import Registry
from ams.wire.service import PushServer, Status, Version

_VIEWERS = frozenset({SERVICE_ADMIN, ADMIN_VIEWER})


OK, WARNING = "ok", "warning"
"""The latter when something needs an operator."""


@dataclass(frozen=True, slots=True)
class About:
    """What the service says about itself."""

    admission: Admission
    registry: Registry
    proxy_hostname: str
    pushing: Pushing
    push_server: str
    """Where the push server is, `HOST:PORT` or `internal`."""

    async def require_viewer(self, token: str | None) -> None:
        """Let in who may see details: raise `NotAuthenticated` or `NotAllowed` (17.4, O6)."""
        principal = await self.admission.principal(token)
        if principal is None:
            raise NotAuthenticated
        if not _may_view(principal, "ams:healthStatus"):
            raise NotAllowed

    async def status(self, *, details: bool) -> Status:
        """Return how the service is; a registry that cannot answer is reported here too (17.4, O9)."""
        status = OK if await self._is_well() else WARNING
        if not self.pushing.enabled:
            return Status(status, push_functionality="disabled")
        health = await self.pushing.server.health(details=details)
        return Status(status, [PushServer(self.push_server, health)])

    async def _is_well(self) -> bool:
        try:
            await self.registry.users.exist()
            return not self.pushing.enabled or await self.pushing.worker() is not None
        except RegistryUnavailable:
            return False

    async def version(self, token: str | None) -> Version:
        """Return what runs here; the release only for those who may view. An unknown token is no error."""
        principal = await self.admission.user_of(token)
        return Version(
            build_time=ams.__released__,
            golang=f"Python {platform.python_version()}",
            compiler=platform.python_implementation(),
            os=platform.system().lower(),
            architecture=platform.machine(),
            release=ams.__version__ if principal and _may_view(principal, "version:list") else "",
            distro=_distribution(),
            hostname=self.proxy_hostname,
        )


def _may_view(principal: Principal, action: str) -> bool:
    is_good = principal.login is None or is_good_for(principal.login, action)
    return is_good and bool(principal.service_roles & _VIEWERS)


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""
