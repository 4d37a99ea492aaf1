from pathlib import Path

import pytest

from ams.storage.audit.records import AuditRecords
from ams.storage.registry.registry import Registry


@pytest.fixture
def records(registry: Registry) -> AuditRecords:
    return registry.audit


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "audit.jsonl")
