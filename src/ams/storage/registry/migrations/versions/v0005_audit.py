"""The audit log: who did which change, from where, and how it ended."""

import sqlalchemy as sa
from alembic import op

from ams.storage.audit.records import guards

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the table, that of its prunings, and what keeps rows as they are."""
    op.create_table(
        "audit_prunings",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("at", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.Column(
            "until", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch: what is older may go"
        ),
    )
    op.create_table(
        "audit",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(36), nullable=False, unique=True),
        sa.Column("at", sa.BigInteger(), nullable=False, index=True, comment="milliseconds since the epoch"),
        *[sa.Column(name, sa.Text(), nullable=False) for name in ("service", "action", "resource", "actor", "address")],
        sa.Column("code", sa.Integer(), nullable=False),
        *[sa.Column(name, sa.Text(), nullable=False) for name in ("result", "reason", "request")],
        sa.Column("times", sa.Integer(), nullable=False),
    )
    op.create_index("audit_by_actor", "audit", ["actor"])
    for statement in guards("audit", op.get_bind().dialect.name):
        op.execute(statement)
