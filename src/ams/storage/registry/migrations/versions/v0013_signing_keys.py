"""Keys that the installation signs with."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add a table."""
    op.create_table(
        "signing_keys",
        sa.Column("purpose", sa.String(16), primary_key=True),
        sa.Column("id", sa.String(40), nullable=False, comment="what names the key where something is signed with it"),
        sa.Column("sealed", sa.LargeBinary(), nullable=False, comment="the private key in PEM, encrypted"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
    )
