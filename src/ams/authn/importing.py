"""The reference's configuration as a TOML file of ours, for `ams settings import`."""

import json
from typing import Any

from ams.authn.json_config import converted, is_of_authn
from ams.core.errors import Unusable
from ams.core.settings import toml_text
from ams.core.settings_import import Imported


def imported(text: str) -> Imported | None:
    """Read a configuration of the reference's certificate service; None for what is another.

    What comes of it is for `ams authn serve --config`. Raises `Unusable` in the reference's words.
    """
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or not is_of_authn(given):
        return None
    found = converted(given)
    toml = "".join(f"{name} = {_value(value)}\n" for name, value in found.values.items())
    try:
        toml.encode()
    except UnicodeEncodeError:
        raise Unusable("a text in it is not Unicode (half a surrogate pair)") from None
    return Imported(toml, found.notes)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_text(name)} = {toml_text(each)}" for name, each in value.items()) + " }"
    return toml_text(value)
