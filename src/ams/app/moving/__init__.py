"""Moving an installation: all it holds into one file, and from there into an empty installation of any shape."""

from ams.app.moving.exporting import export
from ams.app.moving.importing import check, import_

__all__ = ["check", "export", "import_"]
