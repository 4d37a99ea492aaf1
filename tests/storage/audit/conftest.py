import pytest

from ams.storage.audit.records import AuditRecords
from ams.storage.registry.registry import Registry


@pytest.fixture
def records(registry: Registry) -> AuditRecords:
    return registry.audit
