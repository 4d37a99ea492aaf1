"""The jobs by name, each loaded when it is asked for."""

from collections.abc import Mapping

JOBS: Mapping[str, str] = {}
"""Name to `module:JOB`."""
