"""Worlds of tests are those of `python -m simulation`."""

import pytest


@pytest.fixture(autouse=True)
def same_order_of_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that a test starts go through sets in one order: hashes of texts are a part of a world."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
