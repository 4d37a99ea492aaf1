"""Compiles Protocol Buffers definitions on the driver, in a worker process as the service does."""

import asyncio

from ams.validation.long_checks import LongChecks
from ams.workers.pool import Pool


def compile_definition(definition: str) -> bytes:
    """Return the descriptor of a definition. Raises `InvalidInput`, or `Overloaded` if no process can start."""

    async def compile_in_pool() -> bytes:
        pool = Pool(1)
        try:
            return await LongChecks(pool).compile(None, definition)
        finally:
            await pool.close()

    return asyncio.run(compile_in_pool())
