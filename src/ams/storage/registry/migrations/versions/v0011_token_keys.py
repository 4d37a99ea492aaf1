"""Public keys of named tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add two columns, and find tokens by one."""
    op.add_column("named_tokens", sa.Column("public_key", sa.Text, comment="PEM; null: none, it is a text"))
    op.add_column("named_tokens", sa.Column("key_id", sa.String(40), comment="of the public key; null: none"))
    op.create_index("named_tokens_key_id_unique", "named_tokens", ["key_id"], unique=True)
