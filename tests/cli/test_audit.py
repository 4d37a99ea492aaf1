import json
import time
from pathlib import Path

from ams.storage.audit.trail import LineFile
from tests.cli.conftest import Ams
from tests.storage.audit.events import event


def written(tmp_path: Path) -> str:
    path = str(tmp_path / "audit.jsonl")
    lines = LineFile(path)
    lines.append(event(0))
    lines.append(event(1000, actor="", action="login", code=401, result="refused", reason="Unauthorized", times=40))
    lines.close()
    return path


def test_the_service_tells_who_did_what(ams: Ams, project: str) -> None:
    ams("topics", "create", "garden")

    made: list[dict[str, str]] = []
    for _ in range(50):  # the table follows within a second
        found = ams.json("audit", "--action", "topics:create", "--actor", "admin")
        made = [each for each in found["events"] if each["resource"] == f"/projects/{project}/topics/garden"]
        if made:
            break
        time.sleep(0.05)

    assert [(each["actor"], each["result"]) for each in made] == [("admin", "done")]
    assert ams("audit", "--since", "tomorrow").returncode == 1


def test_a_file_is_read_while_nothing_runs(ams: Ams, tmp_path: Path) -> None:
    path = written(tmp_path)

    table = ams("audit", "--file", path, "--endpoint", "http://127.0.0.1:1")
    lines = ams("audit", "--file", path, "--result", "refused", "-o", "json")

    assert [line.split("  ") for line in table.stdout.splitlines()][2][-1] == "refused (401: Unauthorized), 40 times"
    assert [json.loads(line)["action"] for line in lines.stdout.splitlines()] == ["login"]
