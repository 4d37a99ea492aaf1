"""Extras of the package: what some commands need beside the command line, and what is said where it is missing."""

from collections.abc import Mapping, Sequence
from importlib import util

NEEDED: Mapping[str, Sequence[str]] = {
    "service": ("alembic", "sqlalchemy", "starlette", "structlog", "uvloop"),
    "migrate": ("aiokafka", "pymongo", "sqlalchemy"),
    "push": ("google.protobuf", "grpc", "grpc_health"),
    "tables": ("deltalake", "pyarrow"),
    "spark": ("deltalake", "pandas", "pyarrow", "pyspark", "sqlglot"),
}
"""Modules by which an extra is known to be there."""


def need(*extras: str) -> None:
    """Raise `Usage`, which says what to install, unless these extras are there."""
    for extra in extras:
        absent = [name for name in NEEDED[extra] if not _is_there(name)]
        if absent:
            from ams.cli.exits import Usage  # it loads the client, which `ams serve` does without

            raise Usage(f"{', '.join(absent)} not installed; pip install 'argo-messaging[{extra}]' brings all it needs")


def _is_there(name: str) -> bool:
    try:
        return util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False
