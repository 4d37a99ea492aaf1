"""The embedded engine: an ordered, durable log in a folder owned by one process."""

from ams.storage.log.embedded.findings import Damage, Recovery, Trimmed
from ams.storage.log.embedded.log import EmbeddedLog
from ams.storage.log.embedded.options import LogOptions
from ams.storage.log.embedded.parts import Part, parts_in
from ams.storage.log.embedded.verify import Report, check

__all__ = ["Damage", "EmbeddedLog", "LogOptions", "Part", "Recovery", "Report", "Trimmed", "check", "parts_in"]
