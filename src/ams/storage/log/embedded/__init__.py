"""The embedded engine: an ordered, durable log in a folder owned by one process.

- `log`: implementation of the `Log` protocol; one log for all topics.
- `options`: settings, and the place of a log.
- `state`: topics, segments and idempotency keys in memory; rebuilds damaged indexes.
- `committer`: the thread that makes appends durable by group commit.
- `group_commit`: requests to the committer, encoding of a group, outcome.
- `record`: encoding of one topic's messages of one group.
- `segment`: segment files: header, name, appending; spare files; preallocation of the open segment.
- `segment_index`: the index of a segment, in memory and as a file.
- `catalog`: look-up of records by offset or time.
- `reader`: reads and verifies messages; caches recent records.
- `pages`: file reads that do not block the event loop.
- `scan`: full scans of segments; verification of a whole log.
- `recovery`: repair at every start.
- `journal`: cursor changes as records of the log, and their checkpoints (images).
- `upkeep`: background work: indexes for sealed segments, retention.
"""

from ams.storage.log.embedded.log import EmbeddedLog
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.scan import ScanReport, check
from ams.storage.log.embedded.state import LogFile, parts_in

__all__ = ["EmbeddedLog", "LogFile", "LogOptions", "ScanReport", "check", "parts_in"]
