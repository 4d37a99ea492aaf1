"""Checking a data folder: everything in it is read, nothing is changed."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from ams.core.errors import Unusable
from ams.storage.folder import Folder, is_in_use, is_ours
from ams.storage.log.embedded import Report, check


class DatabaseReport(NamedTuple):
    """What a database says of itself."""

    file: str
    problems: tuple[str, ...]


class FolderReport(NamedTuple):
    """What a data folder holds."""

    log: Report
    databases: Sequence[DatabaseReport]

    @property
    def problems(self) -> list[str]:
        """Everything that is not as it was written, a line each."""
        found = [str(damage) for damage in self.log.damage]
        return found + [f"{each.file}: {problem}" for each in self.databases for problem in each.problems]


def check_folder(path: str) -> FolderReport:
    """Read the whole folder; blocking. Raises `Unusable` when it is no data folder, or a service is using it."""
    if not is_ours(path):
        raise Unusable(f"{path} is not a data folder")
    if is_in_use(path):
        raise Unusable(f"data folder {path} is in use; stop the service, or check a copy")
    folder = Folder.look(path)
    if not any(map(os.path.exists, (folder.log, folder.registry, folder.cursors))):
        raise Unusable(f"{path} holds keys only: what its service keeps is in Kafka and PostgreSQL")
    return FolderReport(check(folder.log), [_database(each) for each in (folder.registry, folder.cursors)])


def _database(path: str) -> DatabaseReport:
    if not os.path.exists(path):
        return DatabaseReport(path, ("is missing",))
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            answers = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    except sqlite3.Error as error:
        return DatabaseReport(path, (str(error),))
    return DatabaseReport(path, tuple(answer for answer in answers if answer != "ok"))
