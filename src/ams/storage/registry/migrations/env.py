"""Runs migrations on the connection `ams.storage.database.schema.migrate` hands over, within its transaction."""

from alembic import context

from ams.storage.registry.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
context.run_migrations()
