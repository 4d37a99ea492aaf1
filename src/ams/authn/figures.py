"""Figures of the certificate service for Prometheus (contract 15, A20); nothing is worked out before somebody asks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ams.authn.certificates.checks import CertificateChecks
from ams.authn.http.protocol import Front
from ams.authn.login import Login
from ams.authn.services import Services
from ams.authn.store import Store
from ams.core.attempts import Attempts
from ams.core.observing import Figure, background_failures, figure
from ams.core.supervisor import Supervisor
from ams.storage.data_check import DataCheck


@dataclass(slots=True)
class Parts:
    """What there is to ask, once all is made."""

    store: Store
    checks: CertificateChecks
    services: Services
    login: Login
    attempts: Sequence[Attempts]
    """Of logins, and of management keys."""
    front: Front


@dataclass(slots=True)
class AuthnFigures:
    """What the operations port tells; `parts` is None until the service is made."""

    supervisor: Supervisor = field(default_factory=Supervisor)
    data: DataCheck | None = None
    parts: Parts | None = None
    draining: bool = False

    def why_not_ready(self) -> str | None:
        """Return why this service cannot be asked; None while it can."""
        if self.supervisor.failure:
            return self.supervisor.failure
        if self.draining:
            return "stopping"
        if self.parts is None:
            return "starting"
        return self.parts.store.away or (self.data.trouble if self.data else None)

    def gauges(self) -> Iterator[Figure]:
        """Yield what goes up and down."""
        parts = self.parts
        if parts is None:
            return
        yield figure("ams_authn_database_reachable", "1 while the database answers.", parts.store.away is None)
        found = parts.checks.figures()
        yield figure("ams_authn_authorities", "CAs that clients are checked by.", found.authorities)
        lists = found.lists
        if lists:
            yield Figure(
                "ams_authn_list_age_seconds",
                "Age of each revocation list.",
                [({"source": each.source}, each.age_seconds) for each in lists],
            )
        ends = [({"source": each.source}, each.ends_in_seconds) for each in lists if each.ends_in_seconds is not None]
        if ends:
            text = "Time until each revocation list is out of date; below 0 when it is."
            yield Figure("ams_authn_list_ends_in_seconds", text, ends)

    def counters(self) -> Iterator[Figure]:
        """Yield what only grows while the service runs."""
        parts = self.parts
        if parts is None:
            return
        yield background_failures(self.supervisor.survived)
        results = [({"result": name}, float(count)) for name, count in parts.login.figures.results.items()]
        yield Figure("ams_authn_logins", "Logins by certificate.", results)
        failures = sum(each.failures for each in parts.attempts)
        yield figure("ams_authn_failed_logins", "Logins and keys that counted as failures.", failures)
        asked = parts.services.figures
        yield figure("ams_authn_service_requests", "Requests to services for a user's token.", asked.requests)
        yield figure("ams_authn_service_failures", "Those without a usable answer.", asked.failures)
        yield figure("ams_authn_service_seconds", "How long they all took.", asked.seconds)
        found = parts.checks.figures()
        yield figure("ams_authn_list_fetches", "Fetches of revocation lists and OCSP answers.", found.fetches)
        yield figure("ams_authn_list_fetch_failures", "Those that failed.", found.failed_fetches)
        refused = [({"reason": name}, float(count)) for name, count in found.refused.items()]
        if refused:
            yield Figure("ams_authn_certificates_refused", "Certificates that were not believed.", refused)
        yield figure("ams_authn_handshakes_failed", "Handshakes that came to nothing.", parts.front.context.failures)
        yield figure(
            "ams_authn_connections_refused",
            "Connections that did not come from a proxy.",
            parts.front.refused_connections,
        )
