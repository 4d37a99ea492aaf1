import os

import pytest

from ams.service import node


def test_shares_are_percentages() -> None:
    assert 0 < node.memory_percent() < 100
    assert 0 <= node.cpu_percent() <= 101 * (os.cpu_count() or 1)
    assert node.host_name()


def test_o2_nothing_fails_where_the_kernel_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("builtins.open", missing)
    assert 0 < node.memory_percent() < 100

    monkeypatch.setattr(os, "sysconf", missing)
    assert node.memory_percent() == 0.0
