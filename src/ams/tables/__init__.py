"""Delta tables by delta-rs; each batch is added exactly once. Needs no Spark and no service.

    ROOT/day=2024-03-05/batch-000012-1f0c9a7e-....parquet     rows of one day from one batch
    ROOT/day=2024-03-05/merged-000031-....parquet             the same after small files were merged
    ROOT/_delta_log/                                          which of the files are the table, version by version

delta-rs writes the log, so every reader of Delta tables can read them. This package adds three things that delta-rs
lacks: it checks that files exist, adds a batch only once, and syncs to stable storage.
"""

from ams.core.errors import AmsError


class WrongTable(AmsError):
    """A table was written by something else, does not fit, or is damaged; nothing was changed."""


class StoreFailed(AmsError):
    """An object store did not answer or refused. Confirmed commits stay; the caller may retry."""
