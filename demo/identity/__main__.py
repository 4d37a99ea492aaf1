"""The command line of the identity demo, and the order of its steps."""

import argparse
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from time import perf_counter

import httpx
from argo_ams_library import AmsException

from demo import federation, service
from demo.identity import tenancy, working
from demo.identity.tenancy import CAROL, ENTITLEMENT, SENSOR, SHORT_LIVED, Tokens
from demo.identity.trying import TRIES, is_refused
from demo.issuer import ExampleIssuer
from demo.service import FAILED, OK, Service, trust_of_library

LOOPBACK = "127.0.0.0/8"


def main() -> int:
    """Run it; return 0 when all came out as it went in and all were refused who should be, 1 when not."""
    options = _options()
    service.stop_by_any_interruption()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="ams-identity-"))
    run = partial(_serve_and_run, folder, options.each)
    status = service.ended("identity-demo", folder, run, AmsException, httpx.HTTPError)
    if status == OK and not options.folder:
        shutil.rmtree(folder)
    return status


def _serve_and_run(folder: Path, each: int) -> int:
    issuers = folder / "issuers.toml"
    with ExampleIssuer() as issuer:
        tenancy.write_issuers(issuers, issuer)
        flags = ("--issuers-file", str(issuers), "--issuers-allow", LOOPBACK)
        with service.running(folder / "ams-data", 0, *flags) as ams:
            return _run(ams, issuer, each)


def _run(ams: Service, issuer: ExampleIssuer, each: int) -> int:
    began = perf_counter()
    print(f"AMS is ready at {ams.url}, the issuer at {issuer.url}.\n", flush=True)
    trust_of_library(ams.ca)
    with federation.administrator(ams) as admin:
        tokens = tenancy.prepare(admin, issuer)
        expires = time.monotonic() + SHORT_LIVED
        name = working.log_in(ams, _alice(issuer))
        print(f"Alice has logged in, and is {name}: publisher by her entitlement.")
        tenancy.let_publish(admin, [name, CAROL, SENSOR])
    published = _publish(ams, issuer, tokens, each)
    received = federation.collect(working.library(ams, tokens.collector))
    print(f"The collector pulled {len(received)} messages.\n\nOthers try:", flush=True)
    time.sleep(max(0.0, expires - time.monotonic()))
    refused = sum(is_refused(ams, issuer, tokens, tried) for tried in TRIES)
    whole = federation.is_whole("identity-demo", published, received)
    print(
        f"identity-demo: accepted {len(published)} refused {refused} messages {len(received)} "
        f"seconds {perf_counter() - began:.1f}"
    )
    return OK if whole and refused == len(TRIES) else FAILED


def _publish(ams: Service, issuer: ExampleIssuer, tokens: Tokens, each: int) -> list[str]:
    """Let all three publish, each message in a request, and Alice again with new keys; return what they said."""
    published = working.publish(ams, _alice(issuer), "Alice", each)
    published += working.publish(ams, issuer.opaque("carol"), "Carol", each)
    published += working.publish_as_ever(ams, tokens.sensor, "The sensor", each)
    issuer.rotate()
    published += working.publish(ams, _alice(issuer), "Alice, by a new key of the issuer,", each)
    print(f"Alice, Carol and the sensor published {len(published)} messages: by JWT, opaque and named token.")
    return published


def _alice(issuer: ExampleIssuer) -> str:
    return issuer.token("alice", audience=tenancy.AUDIENCE, claims={"entitlements": [ENTITLEMENT]})


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m demo.identity", description="Log in with tokens of an issuer.")
    parser.add_argument("--folder", type=Path, help="where all of it is written (default: a temporary folder)")
    parser.add_argument("--each", type=int, default=50, help="messages of each publisher (default: %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
