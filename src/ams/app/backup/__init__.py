"""Backups of a data folder, taken while the service runs or not, and restored into a new folder.

taking       a copy of a data folder as it was at one moment
copying      the files of a backup, and the manifest that says what there is
keeping      how a backup asks the running service to remove no file meanwhile
restoring    a backup becomes a new data folder, every byte compared with the manifest
"""

from ams.app.backup.copying import Manifest
from ams.app.backup.restoring import restore
from ams.app.backup.taking import take

__all__ = ["Manifest", "restore", "take"]
