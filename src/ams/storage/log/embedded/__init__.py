"""The embedded engine: an ordered, durable log in a folder owned by one process.

log              the log itself, one for all topics
options          what can be set
state            what an open log holds: its topics, where their messages are, and idempotency keys
committer        the thread that makes appends durable, a group at a time
group_commit     one group: what is asked of the committer, how it is packed, and what was done
record           one topic's messages of one group, as bytes
segment          the file of records: its header, its name, and writing to its end; spares
ahead            pages of the open segment, written before its records come
segment_index    the index of a segment in memory
index_file       the index file of a sealed segment, as bytes
catalog          topics and segments of an open log, and the way from an offset or a time to records
reader           reading messages, each checked; those read again and again are kept in memory
pages            reading files without keeping the event loop waiting
scan             reading a segment from beginning to end; verifying all of them, changing nothing
recovery         from the files of a folder to a whole log, at every start
journal          groups of moves of cursors, as records of the log, and images of all of them
upkeep           sealed segments get indexes, old ones are removed, damaged indexes are made anew
"""

from ams.storage.log.embedded.log import EmbeddedLog
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.recovery import Recovery
from ams.storage.log.embedded.scan import Damage, Report, Trimmed, check
from ams.storage.log.embedded.state import Part, parts_in

__all__ = ["Damage", "EmbeddedLog", "LogOptions", "Part", "Recovery", "Report", "Trimmed", "check", "parts_in"]
