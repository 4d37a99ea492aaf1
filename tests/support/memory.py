"""Memory of a function, measured in a process in which nothing else runs."""

import gc
import multiprocessing
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def in_a_process(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the result of a module's function in its own process.

    In the tests' process, threads of other tests' services would be counted too.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *args, **kwargs).result()


@contextmanager
def trace_memory() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the bytes allocated since and still held."""
    gc.collect()
    tracemalloc.start()
    try:
        yield _allocated_bytes
    finally:
        tracemalloc.stop()


def _allocated_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
