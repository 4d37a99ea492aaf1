"""Worker processes: long work is done beside the event loop, in limited time and memory.

pool      turns by project, and the processes that do the tasks
program   runs in a process
"""

from ams.workers.pool import NoWorker, Pool, TaskFailed

__all__ = ["NoWorker", "Pool", "TaskFailed"]
