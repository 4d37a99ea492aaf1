"""Writing the file of profiles that `ams.client.profiles` reads, and files of tokens beside it."""

import os

from ams.cli.exits import Usage
from ams.client.profiles import CURRENT, Profiles
from ams.core.settings import toml_text
from ams.storage.files import Disk, write_whole


def write_profiles(path: str, profiles: Profiles) -> None:
    """Replace the file as one step."""
    lines = [f"{CURRENT} = {toml_text(profiles.current)}\n"] if profiles.current else []
    for name, table in profiles.tables.items():
        lines.append(f"[{toml_text(name)}]")
        lines += [f"{key} = {toml_text(value)}" for key, value in table.items()]
        lines.append("")
    write_secret(path, "\n".join(lines))


def token_path(path: str, name: str) -> str:
    """Return where the token of a profile is kept, beside the file of profiles."""
    return os.path.join(os.path.dirname(path), f"{name}.token")


def write_secret(path: str, text: str) -> None:
    """Write a file only its owner can read, whole or not at all; raise `Usage` when that cannot be."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_whole(Disk(), path, text.encode())
    except OSError as error:
        raise Usage(f"{path}: {error.strerror}") from error
