from pathlib import Path

import pytest

from tests.support.dead_letters import dead_letter
from tests.support.documents import ROOT, follow, make_clone, run
from tests.support.service import LiveService, live_service

pytestmark = [pytest.mark.acceptance, pytest.mark.long]

GUIDE = ROOT / "docs" / "how-to" / "dead-letters.md"
WORKER = "the-token-of-the-push-worker"
SUBSCRIPTION = "projects/garden/subscriptions/watering"
BEFORE = """
export AMS_PROJECT=garden
.venv/bin/ams projects create garden
.venv/bin/ams topics create readings
.venv/bin/ams topics create readings-dead
.venv/bin/ams subs create watering --topic readings
.venv/bin/ams subs push-config watering --url https://pump.example/in --dead-letter-topic readings-dead
printf one | .venv/bin/ams publish readings --file -
printf two | .venv/bin/ams publish readings --file - --attr pump=7
printf three | .venv/bin/ams publish readings --file -
"""


def test_the_commands_of_the_guide_to_dead_letters_work(tmp_path: Path) -> None:
    make_clone(tmp_path)
    with live_service(
        tmp_path / "ams-data", "--tls-self-signed", "--push-enabled", "--push-worker-token", WORKER
    ) as live:
        furnish(tmp_path, live)
        guide = tmp_path / GUIDE.name
        guide.write_text(GUIDE.read_text().replace(".venv/bin/ams topics create readings-dead\n", ""))

        follow(guide, tmp_path, live.base_url)


def furnish(clone: Path, live: LiveService) -> None:
    made = run(BEFORE, clone, AMS_ENDPOINT=live.base_url)
    assert made.returncode == 0, made.stdout
    for offset, (reason, status) in enumerate([("Bad Request", 400), ("no such pump", 422)]):
        dead_letter(live.base_url, live.ca, WORKER, SUBSCRIPTION, offset, reason, status)
