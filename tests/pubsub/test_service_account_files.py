"""A program of Google's library logs in by its service account file, over TLS, changed in nothing but the endpoint."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import LiveService, live_service

PROGRAM = """
import sys
from google.api_core.exceptions import GoogleAPICallError
from google.cloud import pubsub_v1

publisher = pubsub_v1.PublisherClient(client_options={"api_endpoint": sys.argv[1]})
for topic in sys.argv[2:]:
    try:
        print(publisher.publish(topic, b"x", retry=None, timeout=60).result(60))
    except GoogleAPICallError as error:
        print(error.code.name, error.message)
"""
"""Publishes one message to each topic; in a process of its own, as gRPC reads its CA certificates once."""
SECONDS = 180
"""Until a program has surely failed; on a busy machine it takes long to begin."""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LiveService]:
    with live_service(tmp_path / "data", "--pubsub-port", "0", "--tls-self-signed", "--min-free-bytes", "0") as service:
        yield service


def ran(service: LiveService, folder: Path, *command: str) -> str:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("AMS_", "PUBSUB_"))}
    environment = own | {
        "AMS_ENDPOINT": service.base_url,
        "AMS_TOKEN": service.token,
        "AMS_CA": str(service.ca),
        "AMS_PROJECT": "garden",
        "GOOGLE_APPLICATION_CREDENTIALS": "robot.json",
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(service.ca),
        "no_proxy": "localhost,127.0.0.1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.long
def test_a_program_publishes_by_its_file_until_that_is_revoked(service: LiveService, tmp_path: Path) -> None:
    ams = "-m", "ams.cli.main"
    service.ask("POST", "/projects/garden", {})
    for topic in ("readings", "alarms"):
        service.ask("PUT", f"/projects/garden/topics/{topic}", {})
    ran(service, tmp_path, *ams, "token", "create", "robot", "--publish", "readings", "--google-file", "robot.json")

    def published(*topics: str) -> list[str]:
        named = (f"projects/{topic.replace('/', '/topics/')}" for topic in topics)
        return ran(service, tmp_path, "-c", PROGRAM, service.pubsub, *named).splitlines()

    kept, forbidden, missing = published("garden/readings", "garden/alarms", "orchard/readings")
    assert kept == "0"
    assert forbidden.startswith("FORBIDDEN ")
    assert missing == "NOT_FOUND Resource not found (resource=orchard)."
    ran(service, tmp_path, *ams, "token", "revoke", "robot")
    [revoked] = published("garden/readings")
    assert revoked.startswith("UNAUTHORIZED ")
