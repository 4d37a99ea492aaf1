"""Backups of a data folder, taken while the service runs or not, and restored into a new folder."""

from ams.backup.manifest import Manifest
from ams.backup.restoring import restore
from ams.backup.taking import take

__all__ = ["Manifest", "restore", "take"]
