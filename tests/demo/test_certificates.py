"""The certificates demo: sites log in with the official library, and others are refused in the contract's words."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import environment

LAST_LINE = re.compile(r"certificates-demo: logins 4 refused 4 messages 30 seconds \d+\.\d")


@pytest.mark.acceptance
def test_the_library_logs_in_with_certificates_and_others_are_refused(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "demo.certificates", "--folder", tmp_path / "demo", "--sites", "3", "--each", "10"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    lines = ran.stdout.splitlines()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert LAST_LINE.fullmatch(lines[-1])
    assert lines[-5:-1] == [
        "  withdrawn: 403 While trying the [auth_x509]: Your certificate has been revoked",
        "  expired: 403 While trying the [auth_x509]: Your certificate has expired",
        "  unbound: 404 While trying the [auth_x509]: Binding was not found",
        "  stranger: 403 While trying the [auth_x509]: Your certificate is not of a CA that is trusted here",
    ]
    audit = (tmp_path / "demo" / "authn-data" / "authn-audit.jsonl").read_text()
    logins = [line for line in map(json.loads, audit.splitlines()) if line["action"] == "login"]
    assert [(line["code"], line["actor"].partition(",")[0]) for line in logins[-5:]] == [
        (200, "CN=host/collector.example.org"),
        (403, "CN=host/withdrawn.example.org"),
        (403, "CN=host/expired.example.org"),
        (404, "CN=host/unbound.example.org"),
        (403, "CN=host/stranger.example.org"),
    ]
    assert len(logins) == 8
    for secret in (tmp_path / "demo" / "authn-data" / "authn.key", tmp_path / "demo" / "ams-data" / "admin.token"):
        assert secret.read_text().strip() not in audit
