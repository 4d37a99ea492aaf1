"""Maintenance of a stopped service: checks a data folder, and rotates the key of its tokens."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from ams.core.errors import BadSettings, Unusable
from ams.storage.cursors.embedded_rows import replay
from ams.storage.database.database import sqlite_url
from ams.storage.files import Disk, write_whole
from ams.storage.folder import Folder, is_in_use, is_ours
from ams.storage.log.embedded import ScanReport, check
from ams.storage.registry.registry import Registry
from ams.storage.registry.signing_keys import NEXT_KEY_ENDING, settle
from ams.storage.secrets import KEY_BYTES, key_file, key_text, parse_key


class FolderReport(NamedTuple):
    """Result of checking a data folder."""

    log: ScanReport
    registry: Sequence[str]  # what is wrong with its database, one line each

    @property
    def problems(self) -> list[str]:
        """All damage, one line each."""
        found = [str(damage) for damage in self.log.damage]
        try:
            replay(self.log.cursors)
        except ValueError as error:
            found.append(f"cursors: {error}")
        return [*found, *self.registry]


def check_folder(path: str) -> FolderReport:
    """Read the whole folder; blocking. Raises `Unusable` if it is not a data folder, or a service uses it."""
    if not is_ours(path):
        raise Unusable(f"{path} is not a data folder")
    if is_in_use(path):
        raise Unusable(f"data folder {path} is in use; stop the service, or check a copy")
    folder = Folder(path)
    if not any(map(os.path.exists, (folder.log, folder.registry, folder.cursors))):
        raise Unusable(f"{path} holds keys only: what its service keeps is in Kafka and PostgreSQL")
    log = check(folder.cursors if os.path.exists(folder.cursors) else folder.log)
    answers = ["is missing"]
    if os.path.exists(folder.registry):
        try:
            with closing(sqlite3.connect(f"file:{folder.registry}?mode=ro", uri=True)) as connection:
                answers = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        except sqlite3.Error as error:
            answers = [str(error)]
    return FolderReport(log, [f"{folder.registry}: {answer}" for answer in answers if answer != "ok"])


class KeyRotation(NamedTuple):
    """Result of a key rotation."""

    tokens: int  # number of tokens that were encrypted anew
    file: str  # path of the new key; empty if the operator has it


async def rotate_key(
    data: str, *, token_key: str = "", new_token_key: str = "", files: Disk | None = None
) -> KeyRotation:
    """Encrypt all tokens of a data folder with a new key; they stay valid.

    `token_key` is the setting, 64 hex digits, if the key is not a file in the folder. Then `new_token_key` is required,
    and the setting must change before the next start. After a kill, the next start finds the right key. Raises
    `Unusable`, or `Damaged` if a token cannot be decrypted; then nothing has changed.
    """
    if token_key and not new_token_key:
        raise BadSettings("AMS_TOKEN_KEY is set, so the key is yours to keep: give the new one as AMS_NEW_TOKEN_KEY")
    if not is_ours(data):
        raise Unusable(f"{data} is not a data folder")
    folder = Folder.take(data)
    try:
        if not Disk().exists(folder.registry):
            raise Unusable(f"{folder.registry} is missing: there are no tokens")
        if token_key:
            url = sqlite_url(folder.registry)
            return KeyRotation(await _change(url, parse_key(token_key), parse_key(new_token_key)), "")
        return await _change_file(folder, new_token_key, files or Disk())
    finally:
        folder.release()


async def rotate_shared_key(registry: str, password: str, token_key: str, new_token_key: str) -> KeyRotation:
    """Encrypt all tokens of a registry in PostgreSQL with a new key. Give it to every service before its next start.

    Raises as `rotate_key`, `Unusable` also while a service uses the registry, and `RegistryUnavailable`.
    """
    if not (token_key and new_token_key):
        text = "services that share a registry have their key as AMS_TOKEN_KEY: give it and AMS_NEW_TOKEN_KEY"
        raise BadSettings(text)
    return KeyRotation(await _change(registry, parse_key(token_key), parse_key(new_token_key), password), "")


async def _change_file(folder: Folder, new_token_key: str, files: Disk) -> KeyRotation:
    url, path = sqlite_url(folder.registry), folder.token_key
    await settle(url, path, files)
    if not files.exists(path):
        raise Unusable(f"{path} is missing; if the key is a setting, give AMS_TOKEN_KEY and AMS_NEW_TOKEN_KEY")
    old = key_file(path, create=False, files=files)
    new = parse_key(new_token_key) if new_token_key else os.urandom(KEY_BYTES)
    write_whole(files, path + NEXT_KEY_ENDING, key_text(new))
    tokens = await _change(url, old, new)
    await settle(url, path, files)
    return KeyRotation(tokens, path)


async def _change(url: str, old: bytes, new: bytes, password: str = "") -> int:
    registry = await Registry.open(url, old, password=password)
    try:
        return await registry.change_key(new)
    finally:
        await registry.close()
