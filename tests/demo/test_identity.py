"""The identity demo: tokens of an issuer and named tokens publish beside each other, and others are refused."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import environment

LAST_LINE = re.compile(r"identity-demo: accepted 15 refused 8 messages 15 seconds \d+\.\d")


@pytest.mark.acceptance
def test_tokens_of_an_issuer_and_named_tokens_publish_and_others_are_refused(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "demo.identity", "--folder", tmp_path / "demo", "--each", "5"],
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
    assert [line.partition(": ")[2] for line in lines[-9:-1]] == []
    audit = (tmp_path / "demo" / "ams-data" / "audit.jsonl").read_text()
    events = [json.loads(line) for line in audit.splitlines()]
    assert [event["action"] for event in events if event["action"] == "logins:create"] == ["logins:create"]
    assert "eyJ" not in audit
    assert (tmp_path / "demo" / "ams-data" / "admin.token").read_text().strip() not in audit
