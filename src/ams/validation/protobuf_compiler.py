"""The compiler of definitions in Protocol Buffers: protoc, of grpcio-tools, in a worker process (`ams.workers`).

protoc reads and writes files and tells errors on the standard error of its process. Here its files are in memory, and
it is given no folder: nothing but the definition can be read, and no import but the well-known types found.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from ams.core.errors import InvalidInput
from ams.validation.protobuf import FILE, WELL_KNOWN, ProtobufSchema
from ams.validation.violations import quoted

_LINE = re.compile(r"^/proc/self/fd/\d+:(\d+):\d+: (.+)$", re.MULTILINE)
_SYNTAXES = ("", "proto2", "proto3")  # one that says nothing is of proto2


def compile_definition(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Compile a definition, for a worker: take its text, return the descriptor. Raises `InvalidInput`."""
    [definition] = parts
    return [_checked(_compiled(bytes(definition)))]


def _compiled(definition: bytes) -> FileDescriptorProto:
    # It is large, and the service itself never compiles.
    from grpc_tools import _protoc_compiler

    well_known = FileDescriptorSet(file=map(FileDescriptorProto.FromString, WELL_KNOWN.values())).SerializeToString()
    with _file(definition) as source, _file(well_known) as known, _file() as made, _file() as errors:
        arguments = [
            "protoc", f"-I{FILE}={_path(source)}", f"--descriptor_set_in={_path(known)}",
            f"--descriptor_set_out={_path(made)}", FILE,
        ]  # fmt: skip
        with _standard_error(errors):
            failed = _protoc_compiler.run_main([each.encode() for each in arguments])
        if failed:
            raise InvalidInput(_reason(_content(errors).decode(errors="replace")))
        return FileDescriptorSet.FromString(_content(made)).file[0]


def _checked(file: FileDescriptorProto) -> bytes:
    """Return the descriptor; raise `InvalidInput` for a definition in Protocol Buffers that cannot be a schema."""
    if file.syntax not in _SYNTAXES:
        raise InvalidInput("The syntax of a schema is proto2 or proto3, not an edition")
    if f"{file.package}.".startswith("google.protobuf."):
        raise InvalidInput("The package of a schema cannot be google.protobuf")
    if len(file.message_type) != 1 or file.enum_type or file.service or file.extension:
        raise InvalidInput("A schema defines one message on top: others, enums and extensions stand in it")
    descriptor = file.SerializeToString()
    ProtobufSchema(descriptor)
    return descriptor


def _reason(errors: str) -> str:
    """Return the first error of protoc with its line; the rest of what it says is of its own files."""
    found = _LINE.search(errors)
    if found is None:
        return "schema is not valid: the compiler does not say why"
    line, text = found.groups()
    if text.startswith("Import "):
        text = f"{text.partition(' was not')[0]} cannot be used: only Google's well-known types can be imported"
    return quoted(f"schema is not valid: line {line}: {text}")


@contextlib.contextmanager
def _file(content: bytes = b"") -> Iterator[BinaryIO]:
    """Open a file in memory that has this content."""
    with open(os.memfd_create("definition", os.MFD_CLOEXEC), "w+b", buffering=0) as file:
        file.write(content)
        yield file


def _path(file: BinaryIO) -> str:
    return f"/proc/self/fd/{file.fileno()}"


def _content(file: BinaryIO) -> bytes:
    file.seek(0)
    return file.read()


@contextlib.contextmanager
def _standard_error(file: BinaryIO) -> Iterator[None]:
    """Let the standard error of this process go to a file."""
    before = os.dup(2)
    try:
        os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
