"""The command line of the certificates demo, and the order of its steps."""

import argparse
import socket
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from argo_ams_library import AmsException

from demo import federation, service
from demo.certificates import tenancy, working
from demo.certificates.authority import Authority, Credentials
from demo.certificates.working import HTTPS, Ports
from demo.service import FAILED, OK, Service, trust_of_library

CONSUMER = "collector"
REFUSED = {
    "withdrawn": (403, "Your certificate has been revoked"),
    "expired": (403, "Your certificate has expired"),
    "unbound": (404, "Binding was not found"),
    "stranger": (403, "Your certificate is not of a CA that is trusted here"),
}
"""Who is refused, the code, and how the text begins."""


def main() -> int:
    """Run it; return 0 when all came out as it went in and all were refused who should be, 1 when not."""
    options = _options()
    service.stop_by_any_interruption()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="ams-certificates-"))

    def run() -> int:
        with service.running(folder / "ams-data", _ams_port(), "--ops-port", "0") as ams:
            return _run(ams, folder.absolute(), [f"site-{n}" for n in range(options.sites)], options.each)

    return service.ended("certificates-demo", folder, run, AmsException)


def _run(ams: Service, folder: Path, sites: list[str], each: int) -> int:
    began = perf_counter()
    certificates = _certificates(folder, sites)
    uuids = tenancy.make_users(ams, sites, CONSUMER)
    flags = (
        *("--cert", str(ams.data / "server.pem"), "--key", str(ams.data / "server.key"), "--ops-port", "0"),
        *("--client-ca", str(folder / "authorities"), "--service-ca", str(ams.ca)),
    )
    with service.started("authn serve", folder / "authn-data", 0, *flags) as authn:
        print(f"AMS is ready at {ams.url}, the certificate service at {authn.url}.")
        _bind(ams, authn, certificates, uuids)
        trust_of_library(ams.ca)
        ports = Ports(_port(ams), _port(authn))
        published = _publish(ports, certificates, sites, each)
        received = federation.collect(working.log_in(ports, certificates[CONSUMER]))
        print(f"The collector logged in and pulled {len(received)} messages.\n\nOthers try:")
        refused = sum(_is_refused(ports, certificates[name], name) for name in REFUSED)
    whole = federation.is_whole("certificates-demo", published, received)
    print(
        f"certificates-demo: logins {len(sites) + 1} refused {refused} messages {len(received)} "
        f"seconds {perf_counter() - began:.1f}"
    )
    return OK if whole and refused == len(REFUSED) else FAILED


def _certificates(folder: Path, sites: list[str]) -> dict[str, Credentials]:
    """Make the certificates of all clients, and the folder of authorities."""
    known, unknown = Authority("Example Grid CA", folder), Authority("Unknown CA", folder)
    certificates = {name: known.certificate_of(name) for name in (*sites, CONSUMER, *REFUSED)}
    certificates["expired"] = known.certificate_of("expired", expired=True)
    certificates["stranger"] = unknown.certificate_of("stranger")
    known.publish(folder / "authorities", [certificates["withdrawn"].certificate])
    return certificates


def _bind(ams: Service, authn: Service, certificates: dict[str, Credentials], uuids: dict[str, str]) -> None:
    """Bind everybody's certificate to their user, and those of others but one to the user of the first site."""
    bound = {name: uuids.get(name, next(iter(uuids.values()))) for name in certificates}
    del bound["unbound"]
    with tenancy.certificate_administrator(authn, ams) as admin:
        ams_there = tenancy.add_service(admin, ams.url, tenancy.make_service_user(ams))
        for name, uuid in bound.items():
            tenancy.bind(admin, ams_there, name, certificates[name], uuid)
    print(f"{len(bound)} certificates are bound to users.\n", flush=True)


def _publish(ports: Ports, certificates: dict[str, Credentials], sites: list[str], each: int) -> list[str]:
    published: list[str] = []
    for site in sites:
        published += working.publish(working.log_in(ports, certificates[site]), site, each)
    print(
        f"{len(sites)} sites logged in, each by its certificate, and published {len(published)} messages.", flush=True
    )
    return published


def _is_refused(ports: Ports, credentials: Credentials, name: str) -> bool:
    """Show how a login ends; return whether it was refused as it should be."""
    code, text = REFUSED[name]
    error = working.refusal(ports, credentials)
    if error is None:
        print(f"  {name} logged in")
        return False
    print(f"  {name}: {error.code} {error.msg}")
    said: str = error.msg
    return bool(error.code == code and said.startswith(f"While trying the [auth_x509]: {text}"))


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


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo.certificates", description="Log in with certificates.")
    parser.add_argument("--folder", type=Path, help="where all of it is written (default: a new temporary folder)")
    parser.add_argument("--sites", type=int, default=20, help="sites that log in (default: %(default)s)")
    parser.add_argument("--each", type=int, default=50, help="messages of each (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
