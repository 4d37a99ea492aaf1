"""Migrations of the certificate service's tables, one file a step; run by `ams.storage.database.schema`."""
