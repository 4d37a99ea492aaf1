"""When subscriptions that go unused were used last."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Add a column."""
    comment = "milliseconds since the epoch, of one that goes unused; null: not noted"
    op.add_column("subscriptions", sa.Column("used_on", sa.BigInteger, comment=comment))
