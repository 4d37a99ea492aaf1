"""What clients do, each with the official library and nothing but a certificate: log in, publish, pull."""

from typing import NamedTuple

from argo_ams_library import AmsMessage, AmsServiceException, ArgoMessagingService

from demo.certificates.authority import Credentials
from demo.certificates.tenancy import HOST
from demo.federation import PROJECT, TOPIC, reports

HTTPS = 443


class Ports(NamedTuple):
    """Where the two services listen."""

    ams: int
    authn: int


def log_in(ports: Ports, credentials: Credentials) -> ArgoMessagingService:
    """Log in by a certificate; raises `AmsServiceException` when that is refused.

    The library reaches both services under one bare name, AMS at port 443. Where AMS could not have that port, the
    library gets its port once the token is there.
    """
    ams = ArgoMessagingService(
        endpoint=HOST, project=PROJECT, cert=credentials.cert, key=credentials.key, authn_port=ports.authn
    )
    if ports.ams != HTTPS:
        ams.endpoint = f"{HOST}:{ports.ams}"
    return ams


def refusal(ports: Ports, credentials: Credentials) -> AmsServiceException | None:
    """Return how a login is refused; None when it is not."""
    try:
        log_in(ports, credentials)
    except AmsServiceException as error:
        return error
    return None


def publish(ams: ArgoMessagingService, site: str, count: int) -> list[str]:
    """Publish reports of a site; return what they say."""
    published = reports(site, count)
    ams.publish(TOPIC, [AmsMessage(data=report, attributes={"site": site}) for report in published])
    return published
