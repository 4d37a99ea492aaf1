"""Moving an installation: all it holds into one file, and from there into an empty installation of any shape.

exporting    everything a stopped installation holds, written as lines
importing    the lines of an export into an empty installation
rules        what must be true of the lines, checked before any is used
files        the file of an export: line by line, compressed or not, stdin or stdout
"""

from ams.app.moving.exporting import export
from ams.app.moving.importing import check, import_

__all__ = ["check", "export", "import_"]
