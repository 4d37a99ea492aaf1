"""The file of issuers that the setting `issuers_file` names; it says as well which entitlements mean which roles.

    [[issuer]]
    name = "egi"
    url = "https://aai.egi.eu/auth/realms/egi"
    audiences = ["ams"]
    create_users = true

      [[issuer.roles]]
      entitlement = "urn:mace:egi.eu:group:monitoring.egi.eu:role=publisher"
      project = "MONITORING"
      roles = ["publisher"]

Fields are those of `ams.core.issuer.Issuer` and `RoleRule`.
"""

import tomllib
from collections.abc import Mapping

from ams.core.errors import BadSettings, InvalidInput
from ams.core.issuer import Issuer, check_together, read_issuer


def read_issuers(path: str) -> tuple[Issuer, ...]:
    """Read a file of issuers, in its order; raise `BadSettings`, which names the file and the issuer."""
    try:
        with open(path, "rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise BadSettings(f"issuers_file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadSettings(f"issuers_file {path}: it is no text in UTF-8") from error
    except (ValueError, RecursionError) as error:  # what is no TOML is a ValueError
        raise BadSettings(f"issuers_file {path}: {error}") from error
    issuers = tuple(_issuer(path, number, each) for number, each in enumerate(_tables(path, table), 1))
    try:
        check_together(issuers)
    except InvalidInput as error:
        raise BadSettings(f"issuers_file {path}: {error.message}") from None
    return issuers


def _tables(path: str, table: Mapping[str, object]) -> list[Mapping[str, object]]:
    tables = table.get("issuer", [])
    if set(table) - {"issuer"} or not isinstance(tables, list) or not all(isinstance(each, dict) for each in tables):
        raise BadSettings(f"issuers_file {path}: it has tables [[issuer]], and nothing else")
    return tables


def _issuer(path: str, number: int, values: Mapping[str, object]) -> Issuer:
    try:
        return read_issuer(values)
    except InvalidInput as error:
        name = values.get("name")
        which = name if isinstance(name, str) and name.isprintable() else number
        raise BadSettings(f"issuers_file {path}: issuer {which}: {error.message}") from None
