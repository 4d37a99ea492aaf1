"""The service about itself: status and version (contract 14.5 and 14.6)."""

import platform
from dataclasses import dataclass

import ams
from ams.access.admission import Admission
from ams.access.roles import ADMIN_VIEWER, SERVICE_ADMIN
from ams.errors import NotAllowed, NotAuthenticated
from ams.registry.records import Principal

_VIEWERS = frozenset({SERVICE_ADMIN, ADMIN_VIEWER})


@dataclass(frozen=True, slots=True)
class About:
    """What the service says about itself."""

    admission: Admission
    proxy_hostname: str

    async def require_viewer(self, token: str | None) -> None:
        """Let in who may see details: raise `NotAuthenticated` or `NotAllowed` (17.4, O6)."""
        principal = await self.admission.user_of(token)
        if principal is None:
            raise NotAuthenticated
        if not _may_view(principal):
            raise NotAllowed

    def status(self) -> dict[str, str]:
        """Return the status; push delivery is not part of this service yet."""
        return {"status": "ok", "push_functionality": "disabled"}

    async def version(self, token: str | None) -> dict[str, str]:
        """Return what runs here; the release only for those who may view. An unknown token is no error."""
        principal = await self.admission.user_of(token)
        told = {
            "release": ams.__version__ if principal and _may_view(principal) else "",
            "distro": _distribution(),
            "hostname": self.proxy_hostname,
        }
        always = {
            "build_time": ams.__released__,
            "golang": f"Python {platform.python_version()}",
            "compiler": platform.python_implementation(),
            "os": platform.system().lower(),
            "architecture": platform.machine(),
        }
        return always | {name: value for name, value in told.items() if value}


def _may_view(principal: Principal) -> bool:
    return bool(principal.service_roles & _VIEWERS)


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""
