"""Runs migrations on the connection of `ams.storage.database.schema.migrate`, within its transaction."""

from alembic import context

from ams.authn.store.tables import METADATA, VERSION

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA, version_table=VERSION)
context.run_migrations()
