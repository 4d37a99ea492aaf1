"""Settings for worlds like those of `python -m simulation`."""

import pytest


@pytest.fixture(autouse=True)
def same_order_of_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix the iteration order of sets in processes of a test: hashes of texts are part of a world."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
