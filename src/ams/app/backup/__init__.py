"""Backups of a data folder, taken while the service runs or not, and restored into a new folder."""

from ams.app.backup.copying import Manifest
from ams.app.backup.restoring import restore
from ams.app.backup.taking import take

__all__ = ["Manifest", "restore", "take"]
