"""Each demo runs to its end, small, and its last line says that nothing was lost."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import environment

pytestmark = [pytest.mark.acceptance, pytest.mark.long]

DEMOS = [
    pytest.param(["certificates", "--sites", "3", "--each", "10"], "logins 4 refused 4 messages 30", id="certificates"),
    pytest.param(["identity", "--each", "5"], "accepted 20 refused 8 messages 20", id="identity"),
    pytest.param(["work", "--messages", "1500"], r"published 1500 worked 1499 lost 0 dead 1 repeated \d+", id="work"),
    pytest.param(
        ["pubsub", "--messages", "2000"], "published 2000 received 2000 lost 0 order 0 dead 1", id="pubsub"
    ),
    pytest.param(
        ["migrate", "--small"], r"users 44 topics 34 messages \d+ lost 0 repeated 0 refused 0", id="migrate",
        marks=(pytest.mark.kafka, pytest.mark.haproxy, pytest.mark.curl),
    ),
]  # fmt: skip
SECRETS = ("ams-data/admin.token", "authn-data/authn.key")
AUDITS = ("ams-data/audit.jsonl", "authn-data/authn-audit.jsonl")


@pytest.mark.parametrize(("words", "result"), DEMOS)
def test_a_demo_ends_well(words: list[str], result: str, tmp_path: Path) -> None:
    name, *flags = words
    folder = tmp_path / "demo"
    ran = subprocess.run(
        [sys.executable, "-m", f"demo.{name}", "--folder", folder, *flags], cwd=tmp_path, env=environment(),
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.fullmatch(rf"{name}-demo: {result} seconds \d+\.\d.*", ran.stdout.splitlines()[-1])
    audits = "".join((folder / each).read_text() for each in AUDITS if (folder / each).exists())
    assert all(json.loads(line) for line in audits.splitlines())
    assert "eyJ" not in audits
    assert not [each for each in SECRETS if (folder / each).exists() and (folder / each).read_text().strip() in audits]
