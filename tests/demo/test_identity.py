"""The identity demo: tokens of an issuer and named tokens publish beside each other, and others are refused."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo import service
from demo.identity import __main__ as identity
from demo.identity import tenancy
from tests.support.documents import environment

LAST_LINE = re.compile(r"identity-demo: accepted 20 refused 8 messages 20 seconds \d+\.\d")


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
    assert lines[-9:-1] == [
        "  unsigned: 401 The token is not signed",
        "  signed with what is public: 401 The token is signed in a way that is not accepted here: HS256",
        "  expired: 401 The token has expired",
        "  for another service: 401 The token is for another audience: others",
        "  of no user: 401 No entitlement of the identity gives it a role here (issuer example)",
        "  named, expired: 401 The token has expired",
        "  named, revoked: 401 Unauthorized",
        "  named, for another topic: 403 The token is not good for this",
    ]
    audit = (tmp_path / "demo" / "ams-data" / "audit.jsonl").read_text()
    events = [json.loads(line) for line in audit.splitlines()]
    assert [event["action"] for event in events if event["action"] == "logins:create"] == ["logins:create"]
    assert "eyJ" not in audit
    assert (tmp_path / "demo" / "ams-data" / "admin.token").read_text().strip() not in audit


def test_when_it_is_told_to_end_it_ends_as_by_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo.identity", "--folder", str(tmp_path / "demo")])
    monkeypatch.setattr(tenancy, "write_issuers", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    before = [signal.getsignal(number) for number in service.INTERRUPTIONS]
    try:
        assert identity.main() == 130
    finally:
        for number, handler in zip(service.INTERRUPTIONS, before, strict=True):
            signal.signal(number, handler)

    assert capsys.readouterr().out == f"\nStopped; what was done is in {tmp_path}/demo.\n"
