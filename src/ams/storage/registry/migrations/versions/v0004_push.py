"""What push delivery needs: secrets of signatures, and who delivers what and how that goes."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add tables, and find quickly what is to be delivered."""
    _secrets()
    _leases()
    pushed = sa.text("push IS NOT NULL")
    op.create_index("subscriptions_pushed", "subscriptions", ["number"], sqlite_where=pushed, postgresql_where=pushed)


def _secrets() -> None:
    op.create_table(
        "push_secrets",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=True),
        sa.Column(
            "subscription_id",
            sa.String(36),
            sa.ForeignKey("subscriptions.id", ondelete="CASCADE"),
            nullable=False,
            index=True,
        ),
        sa.Column("sealed", sa.LargeBinary(), nullable=False, comment="encrypted"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.Column(
            "until", sa.BigInteger(), comment="milliseconds since the epoch; null: until another takes its place"
        ),
        sqlite_autoincrement=True,
    )


def _leases() -> None:
    op.create_table(
        "push_holders",
        sa.Column("holder", sa.String(64), primary_key=True, comment="its name, another one at each start"),
        sa.Column("until", sa.BigInteger(), nullable=False, comment="end of its leases: milliseconds since the epoch"),
        sa.Column("leaving", sa.Boolean(), nullable=False, comment="whether it only finishes what it has"),
    )
    op.create_table(
        "push_leases",
        sa.Column(
            "subscription_id", sa.String(36), sa.ForeignKey("subscriptions.id", ondelete="CASCADE"), primary_key=True
        ),
        sa.Column(
            "holder",
            sa.String(64),
            sa.ForeignKey("push_holders.holder", ondelete="CASCADE"),
            nullable=False,
            index=True,
        ),
    )
    op.create_table(
        "push_states",
        sa.Column(
            "subscription_id",
            sa.String(36),
            sa.ForeignKey("push_leases.subscription_id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("state", sa.Text(), nullable=False, comment="JSON"),
        sa.Column("changed_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
    )
