"""The two programs of the workers: how they are started."""

import os
import sys
from pathlib import Path

from demo.service import Service
from demo.work import site
from demo.workers import Worker

HANDLER = f"""\
read -r job || true
case $job in *"{site.BROKEN}") exit 1 ;; esac
echo "$job" >>"$1"
"""
"""What `ams work` runs for each message, which it gets on stdin: the exit code says whether the job is done."""
AT_ONCE = ("--concurrency", "4")
"""A shell for each message costs its start, so that several run at a time."""


def library_worker(number: int, ams: Service, token: Path, folder: Path) -> Worker:
    """Start a worker with the official library."""
    environment = {**os.environ, "REQUESTS_CA_BUNDLE": str(ams.ca), "PYTHONUNBUFFERED": "1"}
    command = (sys.executable, "-m", "demo.work.library", ams.endpoint, str(token))
    return Worker(f"library-{number}", command, environment, folder)


def command_worker(number: int, ams: Service, token: Path, folder: Path) -> Worker:
    """Start `ams work` with a shell script for each message."""
    handler = folder / "handler.sh"
    handler.write_text(HANDLER)
    connection = {
        "AMS_ENDPOINT": ams.url,
        "AMS_CA": str(ams.ca),
        "AMS_TOKEN_FILE": str(token),
        "AMS_PROJECT": site.PROJECT,
    }
    work = (sys.executable, "-m", "ams.cli.main", "work", site.SUBSCRIPTION, *AT_ONCE, "--", "sh", str(handler))
    return Worker(f"ams-work-{number}", work, {**os.environ, **connection}, folder)
