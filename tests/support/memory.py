"""What something takes of memory, in a process in which nothing else runs."""

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
    """Return what a function of a module returns in a process of its own.

    In that of the tests, services of other tests go on: what their threads take meanwhile would be counted.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(work, *args, **kwargs).result()


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Yield what returns the bytes that were taken since and are still held."""
    gc.collect()
    tracemalloc.start()
    try:
        yield _held
    finally:
        tracemalloc.stop()


def _held() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
