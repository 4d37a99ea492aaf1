"""Checks the optional dependencies (extras) of commands."""

from collections.abc import Mapping, Sequence
from importlib import util

MODULES_OF_EXTRAS: Mapping[str, Sequence[str]] = {
    "service": ("alembic", "sqlalchemy", "starlette", "structlog", "uvloop"),
    "migrate": ("aiokafka", "pymongo", "sqlalchemy"),
    "push": ("google.protobuf", "grpc", "grpc_health"),
    "tables": ("deltalake", "pyarrow"),
    "spark": ("deltalake", "pandas", "pyarrow", "pyspark"),
}
"""Modules that prove that an extra is installed."""


def require_extras(*extras: str) -> None:
    """Raise `Usage`, which says what to install, unless the extras are installed."""
    for extra in extras:
        absent = [name for name in MODULES_OF_EXTRAS[extra] if not _is_there(name)]
        if absent:
            from ams.cli.exit_codes import Usage  # it loads the client, which `ams serve` does not need

            raise Usage(f"{', '.join(absent)} not installed; pip install 'argo-messaging[{extra}]' brings all it needs")


def _is_there(name: str) -> bool:
    try:
        return util.find_spec(name) is not None
    except ModuleNotFoundError:  # its package is missing
        return False
