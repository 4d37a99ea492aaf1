"""What was measured in the last day, and which node measures."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add two tables."""
    op.create_table(
        "history",
        sa.Column("of", sa.Text(), primary_key=True, comment="a topic's, subscription's or project's id, or `service`"),
        sa.Column("began", sa.BigInteger(), primary_key=True, comment="minutes since the epoch"),
        sa.Column("data", sa.LargeBinary(), nullable=False, comment="records of 33 bytes (`ams.service.history`)"),
    )
    op.create_table(
        "history_turns",
        sa.Column("node", sa.String(36), primary_key=True, comment="the node that measures"),
        sa.Column("until", sa.BigInteger(), nullable=False, comment="end of its turn: milliseconds since the epoch"),
    )
