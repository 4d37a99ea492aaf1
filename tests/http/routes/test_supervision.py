"""Every part of a service has the supervisor that `/readyz` asks; here, as this folder is tested on all engines."""

from pathlib import Path
from typing import Any

import pytest

from ams.core.supervisor import Supervisor
from tests.support.served import served


def test_all_parts_of_a_service_share_one_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: dict[str, Supervisor] = {}
    task, thread = Supervisor.task, Supervisor.thread

    def noted_task(supervisor: Supervisor, part: str, *others: Any, **more: Any) -> Any:
        watched[part] = supervisor
        return task(supervisor, part, *others, **more)

    def noted_thread(supervisor: Supervisor, part: str, *others: Any, **more: Any) -> Any:
        watched[part] = supervisor
        return thread(supervisor, part, *others, **more)

    monkeypatch.setattr(Supervisor, "task", noted_task)
    monkeypatch.setattr(Supervisor, "thread", noted_thread)
    with served(tmp_path / "ams-data"):
        assert len(set(watched.values())) == 1, watched
        assert {"HTTP server", "counting", "uses of tokens"} <= watched.keys()
