"""`ams profile`: the URLs and tokens of services, by name. No token is printed."""

import contextlib
import os
import sys
from typing import Annotated

from ams.cli.arguments import Output, argument, option
from ams.cli.command import CommandGroup
from ams.cli.exit_codes import Usage, file_named
from ams.cli.output import Format, columns, fields, note, write
from ams.client.connection import CURRENT, Profiles, endpoint_of, profiles_path, read_profiles
from ams.core.names import is_name
from ams.core.settings import environment, toml_text
from ams.storage.files import Disk, write_whole

app = CommandGroup(
    "ams profile set site --endpoint https://ams.example --project garden --token-stdin < site.token",
    "ams profile use site",
)

Name = Annotated[str, argument("PROFILE", "Name of the profile.")]


@app.command("list")
def list_(output: Output = Format.TABLE) -> None:
    """List the profiles; a star marks the one in use."""
    _, found = _profiles()
    shown = [_profile_row(found, name) for name in found.tables]
    keys = ("name", "endpoint", "project", "token")
    rows = [("*" if each["current"] else "", *(str(each[key]) for key in keys)) for each in shown]
    write(output, {"profiles": shown}, columns(("", "PROFILE", "ENDPOINT", "PROJECT", "TOKEN"), rows))


@app.command()
def show(name: Name, output: Output = Format.TABLE) -> None:
    """Show a profile, and where its token is."""
    _, found = _profiles(name)
    shown = _profile_row(found, name)
    texts = {key: value if isinstance(value, str) else ("yes" if value else "") for key, value in shown.items()}
    write(output, shown, fields(texts))


@app.command()
def use(name: Name) -> None:
    """Make a profile the default: for commands without a profile or a service."""
    path, found = _profiles(name)
    write_profiles(path, Profiles(found.tables, name))
    note(f"profile {name} is in use")


@app.command("set")
def set_(
    name: Name,
    endpoint: Annotated[str | None, option("Service, https://HOST:PORT.")] = None,
    project: Annotated[str | None, option("Project.", "--project", "-p")] = None,
    ca: Annotated[str | None, option("File of CA certificates to trust.")] = None,
    token_file: Annotated[str | None, option("File that holds the token, read when it is needed.")] = None,
    bearer_token_file: Annotated[
        str | None, option("File that holds a bearer token, read again when it was renewed.")
    ] = None,
    token_stdin: Annotated[bool, option("Read the token from standard input and keep it.", "--token-stdin")] = False,
    authn_endpoint: Annotated[str | None, option("Certificate service, https://HOST:PORT.")] = None,
    authn_key_file: Annotated[str | None, option("File that holds its management key.")] = None,
    authn_ca: Annotated[str | None, option("File of CA certificates to trust there.")] = None,
) -> None:
    """Make a profile or change what is named of it; an empty value takes it away."""
    if (bool(token_file), bool(bearer_token_file), token_stdin).count(True) > 1:
        raise Usage("give --token-file, --bearer-token-file or --token-stdin, not both")
    path, found = _profiles()
    # The name is used as a file name, and `current` is a key of the profiles file.
    if name == CURRENT or not is_name(name):
        raise Usage(f"{name!r} cannot be the name of a profile: letters, digits, - and _, and not {CURRENT!r}")
    said = {"endpoint": endpoint and endpoint_of(endpoint), "project": project, "ca": _absolute(ca)}
    said |= {"token_file": _absolute(token_file), "authn_endpoint": authn_endpoint and endpoint_of(authn_endpoint)}
    said |= {"authn_key_file": _absolute(authn_key_file), "authn_ca": _absolute(authn_ca)}
    if token_stdin:
        token = sys.stdin.readline().strip()
        if not token or not token.isascii() or not token.isprintable():
            raise Usage("standard input does not hold a token")
        kept = _token_path(path, name)
        write_secret(kept, f"{token}\n")
        said["token_file"] = os.path.basename(kept)
    if said["token_file"] is not None:
        said["token"] = ""
    # A profile has a token of one kind.
    if bearer_token_file:
        said |= {"bearer_token_file": _absolute(bearer_token_file), "token": "", "token_file": ""}
    else:
        said["bearer_token_file"] = "" if said["token_file"] else bearer_token_file
    if said["authn_key_file"] is not None:
        said["authn_key"] = ""
    changed = {**found.tables.get(name, {}), **{key: value for key, value in said.items() if value is not None}}
    table = {key: value for key, value in changed.items() if value}
    write_profiles(path, Profiles({**found.tables, name: table}, found.current))
    note(f"profile {name} is set")


@app.command()
def remove(name: Name) -> None:
    """Forget a profile, and its token if it was kept here."""
    path, found = _profiles(name)
    left = {each: table for each, table in found.tables.items() if each != name}
    write_profiles(path, Profiles(left, None if found.current == name else found.current))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_token_path(path, name))
    note(f"profile {name} is removed")


def _profiles(name: str | None = None) -> tuple[str, Profiles]:
    """Return path and content of the file. Raises `Usage` if it has no profile of this name."""
    path = profiles_path(environment())
    found = read_profiles(path)
    if name is not None and name not in found.tables:
        raise Usage(f"no profile {name!r}; there are: {', '.join(found.tables) or 'none'}")
    return path, found


def _profile_row(found: Profiles, name: str) -> dict[str, str | bool]:
    table = found.tables[name]
    of_file = table.get("token_file") or table.get("bearer_token_file")
    return {
        "name": name,
        "endpoint": table.get("endpoint", ""),
        "project": table.get("project", ""),
        "ca": table.get("ca", ""),
        "token": of_file or ("in the file of profiles" if table.get("token") else ""),
        "authn": table.get("authn_endpoint", ""),
        "current": found.current == name,
    }


def _absolute(path: str | None) -> str | None:
    return os.path.abspath(os.path.expanduser(path)) if path else path


def write_profiles(path: str, profiles: Profiles) -> None:
    """Replace the file atomically."""
    lines = [f"{CURRENT} = {toml_text(profiles.current)}\n"] if profiles.current else []
    for name, table in profiles.tables.items():
        lines.append(f"[{toml_text(name)}]")
        lines += [f"{key} = {toml_text(value)}" for key, value in table.items()]
        lines.append("")
    write_secret(path, "\n".join(lines))


def _token_path(path: str, name: str) -> str:
    return os.path.join(os.path.dirname(path), f"{name}.token")


def write_secret(path: str, text: str) -> None:
    """Write a file atomically, readable by its owner only. Raises `Usage` if it fails."""
    with file_named(path):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        write_whole(Disk(), path, text.encode())
