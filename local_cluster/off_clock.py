"""A node whose time of day is wrong: `python -m local_cluster.off_clock SECONDS`, settings from the environment."""

import asyncio
import os
import signal
import sys

from ams.app.lifecycle import running
from ams.core.clock import Milliseconds, SystemClock
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.core.telemetry import configure_logs


class OffClock:
    """The machine's clocks, with a fixed error of the time of day."""

    def __init__(self, seconds: float) -> None:
        self._off = round(seconds * 1000)
        self._right = SystemClock()

    def wall(self) -> Milliseconds:
        """Return the wrong time of day."""
        return Milliseconds(self._right.wall() + self._off)

    def monotonic(self) -> Milliseconds:
        """Return the machine's monotonic clock: a wrong time of day does not touch it."""
        return self._right.monotonic()


async def serve(seconds: float) -> None:
    """Serve until SIGTERM with a clock so many seconds off."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = Settings.load({}, os.environ, warn=print)
    configure_logs(settings.log_level, settings.log_format, settings.log_facilities)
    async with running(settings, Supervisor(), clock=OffClock(seconds)) as run:
        print(f"ready {run.base_url}", flush=True)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
