"""The embedded engine: an ordered, durable log in a folder owned by one process."""

from ams.storage.log.embedded.log import EmbeddedLog
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.recovery import Recovery
from ams.storage.log.embedded.scan import Damage, Trimmed
from ams.storage.log.embedded.state import Part, parts_in
from ams.storage.log.embedded.verify import Report, check

__all__ = ["Damage", "EmbeddedLog", "LogOptions", "Part", "Recovery", "Report", "Trimmed", "check", "parts_in"]
