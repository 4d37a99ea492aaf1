"""Definitions in Protocol Buffers on the driver: compiled as the service compiles them, in a worker."""

import asyncio

from ams.validation.long_checks import LongChecks
from ams.workers import Pool


def compile_definition(definition: str) -> bytes:
    """Return the descriptor of a definition; raise `InvalidInput`, `Overloaded` where no process can be begun."""

    async def compiled() -> bytes:
        pool = Pool(1)
        try:
            return await LongChecks(pool).compile(None, definition)
        finally:
            await pool.close()

    return asyncio.run(compiled())
