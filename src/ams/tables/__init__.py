"""Delta tables, by delta-rs, that batches are added to exactly once; no Spark, no service.

    ROOT/day=2024-03-05/batch-000012-1f0c9a7e-....parquet     what a batch brought of a day
    ROOT/day=2024-03-05/merged-000031-....parquet             the same after small files were merged
    ROOT/_delta_log/                                          which of the files are the table, version by version

delta-rs writes the log, and any reader of Delta tables reads them. What it does not do is done here: it takes files
that are not there, counts a batch twice, and syncs nothing.
"""

from ams.core.errors import AmsError


class WrongTable(AmsError):
    """A table was written by something else, does not fit, or is damaged; nothing was changed."""


class StoreFailed(AmsError):
    """An object store did not answer, or refused; what was confirmed stays, and the same may be tried again."""
