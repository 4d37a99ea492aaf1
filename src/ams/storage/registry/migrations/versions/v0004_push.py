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
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("subscription_id", sa.String(length=36), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False, comment="encrypted"),
        sa.Column("created_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.Column(
            "until", sa.BigInteger(), comment="milliseconds since the epoch; null: until another takes its place"
        ),
        sa.ForeignKeyConstraint(
            ["subscription_id"], ["subscriptions.id"], name="push_secrets_subscription_id_exists", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("number", name="push_secrets_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("push_secrets_by_subscription_id", "push_secrets", ["subscription_id"])


def _leases() -> None:
    op.create_table(
        "push_holders",
        sa.Column("holder", sa.String(length=64), nullable=False, comment="its name, another one at each start"),
        sa.Column("until", sa.BigInteger(), nullable=False, comment="end of its leases: milliseconds since the epoch"),
        sa.Column("leaving", sa.Boolean(), nullable=False, comment="whether it only finishes what it has"),
        sa.PrimaryKeyConstraint("holder", name="push_holders_key"),
    )
    op.create_table(
        "push_leases",
        sa.Column("subscription_id", sa.String(length=36), nullable=False),
        sa.Column("holder", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["subscription_id"], ["subscriptions.id"], name="push_leases_subscription_id_exists", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["holder"], ["push_holders.holder"], name="push_leases_holder_exists", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("subscription_id", name="push_leases_key"),
    )
    op.create_index("push_leases_by_holder", "push_leases", ["holder"])
    op.create_table(
        "push_states",
        sa.Column("subscription_id", sa.String(length=36), nullable=False),
        sa.Column("state", sa.Text(), nullable=False, comment="JSON"),
        sa.Column("changed_on", sa.BigInteger(), nullable=False, comment="milliseconds since the epoch"),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["push_leases.subscription_id"],
            name="push_states_subscription_id_exists",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("subscription_id", name="push_states_key"),
    )
