"""Logging in with certificates: `python -m demo.certificates`, or `make certificates-demo`.

`ams serve` and `ams authn serve` run on one host name. Sites have host certificates of a CA made for the demo, which
the certificate service trusts by a folder as the grid's are: the CA's certificate, and its revocation list. With the
official client library every site logs in by its certificate, gets its token, and publishes; a collector logs in
likewise and pulls. Then others try, whose certificates are revoked, expired, not bound, or of an unknown CA.
"""

import socket
import sys
from argparse import Namespace
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from argo_ams_library import AmsException, AmsMessage, AmsServiceException, ArgoMessagingService

from ams.client import Client, wire
from ams.client.wire import UserDetails, authn
from ams.core.distinguished_names import of_certificate
from demo import command_line, service, site
from demo.authority import Authority, Credentials
from demo.service import Service, trust_of_library
from demo.site import PROJECT, SUBSCRIPTION, TOPIC

CONSUMER = "collector"
REFUSED = {
    "withdrawn": (403, "Your certificate has been revoked"),
    "expired": (403, "Your certificate has expired"),
    "unbound": (404, "Binding was not found"),
    "stranger": (403, "Your certificate is not of a CA that is trusted here"),
}
"""Clients that are refused, the code, and the beginning of the message."""
SERVICE_TYPE = "ams"
"""The name that the official library uses."""
HOST = "localhost"
"""The name of both services, as the library uses one name for both."""
HTTPS = 443


class Ports(NamedTuple):
    """Ports of the two services."""

    ams: int
    authn: int


def play(folder: Path, options: Namespace) -> bool:
    """Return whether all came out as it went in, and all were refused who should be."""
    sites = [f"site-{number}" for number in range(options.sites)]
    with service.running(folder / "ams-data", _ams_port(), "--ops-port", "0") as ams:
        began = perf_counter()
        certificates = _certificates(folder, sites)
        uuids = _make_users(ams, sites)
        flags = (
            *("--cert", str(ams.data / "server.pem"), "--key", str(ams.data / "server.key"), "--ops-port", "0"),
            *("--client-ca", str(folder / "authorities"), "--service-ca", str(ams.ca)),
        )
        with service.started("authn serve", folder / "authn-data", 0, *flags) as certificate_service:
            print(f"AMS is ready at {ams.url}, the certificate service at {certificate_service.url}.")
            _bind(ams, certificate_service, certificates, uuids)
            trust_of_library(ams.ca)
            ports = Ports(_port(ams), _port(certificate_service))
            published = _publish(ports, certificates, sites, options.each)
            received = site.collect(_log_in(ports, certificates[CONSUMER]))
            print(f"The collector logged in and pulled {len(received)} messages.\n\nOthers try:")
            refused = sum(_is_refused(ports, certificates[name], name) for name in REFUSED)
    whole = site.is_whole("certificates-demo", published, received)
    print(
        f"certificates-demo: logins {len(sites) + 1} refused {refused} messages {len(received)} "
        f"seconds {perf_counter() - began:.1f}"
    )
    return whole and refused == len(REFUSED)


def _certificates(folder: Path, sites: list[str]) -> dict[str, Credentials]:
    """Make the certificates of all clients, and the folder of authorities."""
    known, unknown = Authority("Example Grid CA", folder), Authority("Unknown CA", folder)
    certificates = {name: known.certificate_of(name) for name in (*sites, CONSUMER, *REFUSED)}
    certificates["expired"] = known.certificate_of("expired", expired=True)
    certificates["stranger"] = unknown.certificate_of("stranger")
    known.publish(folder / "authorities", [certificates["withdrawn"].certificate])
    return certificates


def _make_users(ams: Service, sites: list[str]) -> dict[str, str]:
    """Make project, topic, subscription and users in AMS; return the users' uuids by name."""
    with ams.administrator() as admin:
        site.make_federation(admin)
        uuids = {name: site.member(admin, name, "publisher").uuid for name in sites}
        uuids[CONSUMER] = site.member(admin, CONSUMER, "consumer").uuid
        admin.call(wire.modify_topic_acl(PROJECT, TOPIC, sites))
        admin.call(wire.modify_subscription_acl(PROJECT, SUBSCRIPTION, [CONSUMER]))
        return uuids


def _bind(ams: Service, certificates_at: Service, made: dict[str, Credentials], uuids: dict[str, str]) -> None:
    """Bind everybody's certificate to their user, and those of others but one to the user of the first site."""
    bound = {name: uuids.get(name, next(iter(uuids.values()))) for name in made if name != "unbound"}
    with ams.administrator() as admin:
        reader = admin.call(wire.create_user("certificates", UserDetails(service_roles=["argo_api_authn"])))
    key = (certificates_at.data / "authn.key").read_text().strip()
    with Client(certificates_at.url, key, ca=str(ams.ca)) as admin:
        ams_there = admin.call(authn.create_service_type(SERVICE_TYPE, [HOST])).uuid
        headers = {"x-api-key": reader.token}
        admin.call(authn.create_auth_method(SERVICE_TYPE, HOST, _port(ams), headers=headers))
        for name, uuid in bound.items():
            subject = of_certificate(made[name].certificate.subject)
            admin.call(authn.create_binding(name, ams_there, HOST, subject, uuid))
    print(f"{len(bound)} certificates are bound to users.\n", flush=True)


def _publish(ports: Ports, certificates: dict[str, Credentials], sites: list[str], each: int) -> list[str]:
    published: list[str] = []
    for name in sites:
        reports = site.reports(name, each)
        ams = _log_in(ports, certificates[name])
        ams.publish(TOPIC, [AmsMessage(data=report, attributes={"site": name}) for report in reports])
        published += reports
    print(
        f"{len(sites)} sites logged in, each by its certificate, and published {len(published)} messages.", flush=True
    )
    return published


def _log_in(ports: Ports, credentials: Credentials) -> ArgoMessagingService:
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


def _is_refused(ports: Ports, credentials: Credentials, name: str) -> bool:
    """Print how a login ends; return whether it was refused as it should be."""
    code, text = REFUSED[name]
    try:
        _log_in(ports, credentials)
    except AmsServiceException as error:
        print(f"  {name}: {error.code} {error.msg}")
        said: str = error.msg
        return bool(error.code == code and said.startswith(f"While trying the [auth_x509]: {text}"))
    print(f"  {name} logged in")
    return False


def _ams_port() -> int:
    """Return the port the official library asks AMS at, if this machine lets us have it; else any."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", HTTPS))
        except OSError:
            return 0
    return HTTPS


def _port(running: Service) -> int:
    return int(running.url.rpartition(":")[2])


if __name__ == "__main__":
    sys.exit(command_line.run("certificates", "Log in with certificates.", play, AmsException, sites=20, each=50))
