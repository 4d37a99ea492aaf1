"""The baseline: the tables of the first release. Write them out here before you add the second migration."""

from alembic import op

from ams.storage.database.schema import create_tables
from ams.storage.registry.tables import REGISTRY

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    create_tables(op.get_bind(), REGISTRY)
