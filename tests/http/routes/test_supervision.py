"""The supervisor of every part of a service is read by `/readyz`; tested here, as this folder runs on all engines."""

from collections.abc import Callable
from functools import partial, partialmethod
from pathlib import Path
from typing import Any

import pytest

from ams.core.supervisor import Supervisor
from tests.support.served import in_process_service


def test_all_parts_of_a_service_share_one_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: dict[str, Supervisor] = {}

    def note(whole: Callable[..., Any], supervisor: Supervisor, part: str, *others: Any, **more: Any) -> Any:
        watched[part] = supervisor
        return whole(supervisor, part, *others, **more)

    for name in ("task", "thread"):
        monkeypatch.setattr(Supervisor, name, partialmethod(partial(note, getattr(Supervisor, name))))
    with in_process_service(tmp_path / "ams-data"):
        assert len(set(watched.values())) == 1, watched
        assert {"counting", "uses of tokens", "leases of messages"} <= watched.keys()
