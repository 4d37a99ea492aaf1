"""The compiler of definitions in Protocol Buffers: protoc, of grpcio-tools, in a worker process (`ams.workers`).

protoc reads and writes files, and reports errors on standard error. Here its files are in memory, and it gets no
folder: it can read the definition and import the well-known types, nothing else.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from ams.core.errors import InvalidInput, refuse_if
from ams.validation.protobuf import FILE, KNOWN_FILES, ProtobufSchema
from ams.validation.violations import quote

_LINE = re.compile(r"^/proc/self/fd/\d+:(\d+):\d+: (.+)$", re.MULTILINE)


def compile_definition(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Compile a definition in a worker: takes its text and returns the descriptor. Raises `InvalidInput`."""
    [definition] = parts
    return [_check_file(_compile(bytes(definition)))]


def _compile(definition: bytes) -> FileDescriptorProto:
    # A large import, and the service itself never compiles.
    from grpc_tools import _protoc_compiler

    well_known = FileDescriptorSet(file=map(FileDescriptorProto.FromString, KNOWN_FILES.values())).SerializeToString()
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


def _check_file(file: FileDescriptorProto) -> bytes:
    """Return the descriptor. Raises `InvalidInput` for a valid definition that cannot be a schema."""
    is_edition = file.syntax not in ("", "proto2", "proto3")  # empty means proto2
    refuse_if(is_edition, "The syntax of a schema is proto2 or proto3, not an edition")
    is_googles = f"{file.package}.".startswith("google.protobuf.")
    refuse_if(is_googles, "The package of a schema cannot be google.protobuf")
    if len(file.message_type) != 1 or file.enum_type or file.service or file.extension:
        raise InvalidInput("A schema defines one message on top: others, enums and extensions stand in it")
    descriptor = file.SerializeToString()
    ProtobufSchema(descriptor)
    return descriptor


def _reason(errors: str) -> str:
    """Return protoc's first error with its line. Later ones are about its temporary files."""
    if (found := _LINE.search(errors)) is None:
        return "schema is not valid: the compiler does not say why"
    line, text = found.groups()
    if text.startswith("Import "):
        text = f"{text.partition(' was not')[0]} cannot be used: only Google's well-known types can be imported"
    return quote(f"schema is not valid: line {line}: {text}")


@contextlib.contextmanager
def _file(content: bytes = b"") -> Iterator[BinaryIO]:
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
    before = os.dup(2)
    try:
        os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
