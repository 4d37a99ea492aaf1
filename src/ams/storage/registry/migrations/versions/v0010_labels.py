"""Labels, how topics use their schemas, deleted revisions of schemas, and where nodes speak Google Pub/Sub."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add columns."""
    for table in ("topics", "subscriptions", "snapshots"):
        op.add_column(table, sa.Column("labels", sa.Text, comment="JSON object of texts; null: none"))
    deleted = "the highest there ever was, where it was deleted; null: the newest"
    op.add_column("schemas", sa.Column("last_revision", sa.Integer, comment=deleted))
    for column in (
        sa.Column("encoding", sa.String(8), comment="JSON or BINARY; null: not said"),
        sa.Column("first_revision", sa.Integer, comment="the oldest that messages may keep; null: any"),
        sa.Column("last_revision", sa.Integer, comment="the newest that messages may keep; null: any"),
    ):
        op.add_column("topic_schemas", column)
    address = "HOST:PORT at which other nodes reach its Google Pub/Sub port; null: none"
    op.add_column("parallel_nodes", sa.Column("pubsub", sa.Text, comment=address))
