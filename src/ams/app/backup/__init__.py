"""Backups of a data folder, taken while the service runs or not, and restored into a new folder.

- live_copy: copies a data folder as it is at one moment
- files: the files and manifest of a backup, and restoring them with every byte compared
- protocol: asks the running service not to delete files during a backup
"""
