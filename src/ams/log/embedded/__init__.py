"""The embedded engine: an ordered, durable log in a folder owned by one process."""

from ams.log.embedded.findings import Damage, Recovery, Trimmed
from ams.log.embedded.log import EmbeddedLog
from ams.log.embedded.options import LogOptions
from ams.log.embedded.parts import Part, parts_in
from ams.log.embedded.verify import Report, check

__all__ = ["Damage", "EmbeddedLog", "LogOptions", "Part", "Recovery", "Report", "Trimmed", "check", "parts_in"]
