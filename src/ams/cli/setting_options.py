"""Options of commands whose options are settings: `ams serve` and `ams push`."""

from typing import Any

import click

from ams.core.settings import flag


def option(setting: Any, variable: str) -> click.Option:
    """Return the option of one field of a table of settings; `variable` is its environment variable."""
    is_switch = isinstance(setting.default, bool)
    names = [flag(setting.name), setting.name]
    if is_switch:
        names[0] += f"/--no-{setting.name.replace('_', '-')}"
    default = "" if setting.default in ("", ()) else f", default {setting.default}"
    return click.Option(
        names,
        default=None,
        is_flag=is_switch,
        type=None if is_switch else str,
        metavar=None if is_switch else "VALUE",
        help=f"{setting.metadata['help']} [{variable}{default}]",
    )
