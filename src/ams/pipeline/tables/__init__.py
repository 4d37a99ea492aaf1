"""Folders of Parquet that batches are written to exactly once, and results that replace each other whole.

    ROOT/day=2024-03-05/batch-1f0c9a7e-000012/part-00000-...parquet     a Table: what one batch brought of one day
    ROOT/day=2024-03-05/merged-000000000031/part-00000-...parquet       the same after its small files were merged
    ROOT/day=2024-03-05/data.parquet                                    a Result: one file, replaced by renaming
    ROOT/_manifest/                                                     what has been committed, and what it holds
    ROOT/_work/                                                         what is being written

Everything passes through `files`, so a path may be on any file system of Hadoop's whose rename is one step (`file:`,
`hdfs:`, and `abfs:` with a hierarchical name space; not `s3a:`, whose rename copies file by file). `commits` holds the
protocol, which knows no Spark.
"""

from ams.pipeline.tables.files import Files
from ams.pipeline.tables.manifest import Folder, Partition
from ams.pipeline.tables.result import Result
from ams.pipeline.tables.table import Table, Written, frame, reading

__all__ = ["Files", "Folder", "Partition", "Result", "Table", "Written", "frame", "reading"]
