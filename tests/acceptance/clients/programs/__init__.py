"""Programs that send the requests of one plan to the service with common HTTP clients.

A program gets the path of a plan and prints the answers. The plan is JSON: `base` (address of the service), `ca` (a CA
file for TLS) and `asks` (in order, each with the members of `Ask`). The output is a JSON list of objects with the
members of `ClientAnswer`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent


class Ask(NamedTuple):
    method: str
    path: str
    token: str
    body: str = ""
    chunked: bool = False
    """Send the body without a known length; clients that cannot do so send the length."""
    expect: bool = False  # wait for `100 Continue` before the body, where the client can
    close: bool = False


class ClientAnswer(NamedTuple):
    status: int
    body: str
    version: str  # of HTTP, `1.0` or `1.1`; empty where the client does not tell

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@cache
def _go(folder: Path) -> str:
    program = folder / "asks"
    subprocess.run(["go", "build", "-o", program, HERE / "nethttp.go"], check=True, timeout=300)
    return str(program)


def _command(client: str, folder: Path) -> list[str]:
    name, *options = client.split()
    match name:
        case "fetch":
            return ["node", str(HERE / "fetch.mjs")]
        case "net/http":
            return [_go(folder)]
        case "java.net.http":
            return ["java", "-XX:TieredStopAtLevel=1", str(HERE / "Asks.java")]
        case "curl":
            return [sys.executable, str(HERE / "curl.py"), *options]
    return [sys.executable, str(HERE / "python.py"), name]


def run_client(client: str, folder: Path, base: str, ca: Path, asks: Sequence[Ask]) -> list[ClientAnswer]:
    plan = folder / f"{os.urandom(4).hex()}.json"
    plan.write_text(json.dumps({"base": base, "ca": str(ca), "asks": [ask._asdict() for ask in asks]}))
    environment = {**os.environ, "NODE_EXTRA_CA_CERTS": str(ca), "NO_PROXY": "localhost,127.0.0.1"}
    ran = subprocess.run(
        [*_command(client, folder), str(plan)], capture_output=True, text=True, timeout=60, check=False,
        env=environment,
    )  # fmt: skip
    assert ran.returncode == 0, f"{client} ended with {ran.returncode}: {ran.stderr[-3000:]}"
    return [ClientAnswer(**told) for told in json.loads(ran.stdout)]
