"""Find quickly what expires: snapshots, and subscriptions that go unused."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add indexes."""
    op.create_index("snapshots_by_expiry", "snapshots", ["expires_on"])
    parallel = sa.text("parallel IS NOT NULL")
    op.create_index(
        "subscriptions_parallel", "subscriptions", ["number"], sqlite_where=parallel, postgresql_where=parallel
    )
