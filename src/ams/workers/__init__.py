"""Worker processes: what would keep the interpreter for long is done beside the event loop, in limited time and memory.

pool      turns by project, and who does which task
worker    one process, as the service sees it
program   what runs in it
"""

from ams.workers.pool import NoWorker, Pool, TaskFailed

__all__ = ["NoWorker", "Pool", "TaskFailed"]
