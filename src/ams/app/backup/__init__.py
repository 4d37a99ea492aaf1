"""Backups of a data folder, taken while the service runs or not, and restored into a new folder.

taking       a copy of a data folder as it was at one moment
copying      the files of a backup and its manifest, and a new data folder made of them, every byte compared
keeping      how a backup asks the running service to remove no file meanwhile
"""

from ams.app.backup.copying import Manifest, restore
from ams.app.backup.taking import take

__all__ = ["Manifest", "restore", "take"]
