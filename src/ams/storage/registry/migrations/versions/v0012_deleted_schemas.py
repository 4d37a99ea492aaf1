"""Topics remember that their schema was deleted, where it was said how messages are written."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Add a column."""
    comment = "what encoding was said of a schema that is deleted; null: none"
    op.add_column("topics", sa.Column("deleted_schema", sa.String(8), comment=comment))
