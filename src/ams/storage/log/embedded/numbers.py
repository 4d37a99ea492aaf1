"""Columns of numbers in files: little-endian, whatever the machine."""

import sys
from array import array


def from_bytes(code: str, data: bytes) -> "array[int]":
    """Read numbers; `code` is their type as `array` names it."""
    numbers = array(code, data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def to_bytes(numbers: "array[int]") -> bytes:
    """Return numbers as they are in a file."""
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()
