"""Maps our errors to Google's codes and texts.

Clients decide by the code alone, except for the reasons of ids in `FailedAckIds`, and two texts that we never send.
Scripts match the texts for missing and existing resources, so these are Google's.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, NoReturn

import grpc
from google.rpc import error_details_pb2, status_pb2

from ams.core import errors, parallel_options

DETAILS = "grpc-status-details-bin"
_DOMAIN, _REASON = "pubsub.googleapis.com", "EXACTLY_ONCE_ACKID_FAILURE"
PERMANENT, UNORDERED = "PERMANENT_FAILURE_INVALID_ACK_ID", "TRANSIENT_FAILURE_UNORDERED_ACK_ID"
_INVALID_ACK_IDS = (
    "Some acknowledgement ids in the request were invalid. This could be because the acknowledgement ids have expired"
    " or the acknowledgement ids were malformed."
)
_UNORDERED_ACK_IDS = (
    "Some acknowledgement ids in the request were out of order: an earlier message of their ordering key is not"
    " acknowledged yet."
)
MOST_NAMED = 7_000  # bytes of ids in an error: clients accept 8 KiB by default
_FRAME = 8  # overhead of an id, in bytes
MOST_TEXT = 1000  # characters of an error's text, which may quote the request
Code = grpc.StatusCode


class NotSupported(errors.InvalidInput):
    """A feature of Google's API that AMS does not have; the message names it."""


CODES: Mapping[type[errors.AmsError], grpc.StatusCode] = {
    errors.InvalidInput: Code.INVALID_ARGUMENT,
    errors.NotAuthenticated: Code.UNAUTHENTICATED,
    errors.NotAllowed: Code.PERMISSION_DENIED,
    errors.NotFound: Code.NOT_FOUND,
    errors.NotAcceptable: Code.INVALID_ARGUMENT,
    errors.AckTimeout: Code.INVALID_ARGUMENT,
    errors.AlreadyExists: Code.ALREADY_EXISTS,
    errors.Conflict: Code.FAILED_PRECONDITION,
    errors.ChangedMeanwhile: Code.ABORTED,
    errors.TooLarge: Code.INVALID_ARGUMENT,
    errors.QuotaExceeded: Code.RESOURCE_EXHAUSTED,
    errors.RateLimited: Code.RESOURCE_EXHAUSTED,
    errors.Overloaded: Code.UNAVAILABLE,
    errors.Unavailable: Code.UNAVAILABLE,
    errors.Damaged: Code.DATA_LOSS,
    errors.Unusable: Code.FAILED_PRECONDITION,
    NotSupported: Code.UNIMPLEMENTED,
}
"""The nearest base class of an error decides. No permanent failure is INTERNAL or UNKNOWN: a publisher with ordering
keys would retry it for ever. A temporary one is UNAVAILABLE, which all clients retry by themselves."""

TEXTS: Mapping[str, str] = {
    parallel_options.BAD_BACKOFF: (
        "The fields retry_policy.minimum_backoff and retry_policy.maximum_backoff must be between 0s and 600s."
    ),
    parallel_options.BAD_BACKOFFS: (
        "The field retry_policy.minimum_backoff (10s if absent) must not be more than retry_policy.maximum_backoff."
    ),
}  # instead of texts with field names of the HTTP API


class Missing(errors.NotFound):
    """A missing resource other than the one of the call: its project, or one that the request refers to."""

    def __init__(self, leaf: str, message: str = "") -> None:
        super().__init__(message)
        self.leaf = leaf


@contextlib.contextmanager
def name_missing(leaf: str) -> Iterator[None]:
    """Name the missing resource, where a call names several."""
    try:
        yield
    except errors.NotFound as error:
        raise Missing(leaf) from error


class FailedAckIds(errors.AckTimeout):
    """Exactly-once delivery: these ids are invalid, or out of order; the others are settled.

    The code is ABORTED, unless all ids of the call are named and invalid. On ABORTED the libraries for Python, Go and
    Node retry the ids that are not named, and so learn the outcome of each; they take any other code for a failure of
    all. The library for Java takes ids that are not named for settled, whatever the code.
    """

    def __init__(self, reasons: Mapping[str, str], asked: Sequence[str] = (), *, names_all: bool = False) -> None:
        """`reasons`: why each id failed. `asked`: all ids of the call. Without `names_all`: name what fits."""
        super().__init__(_INVALID_ACK_IDS if PERMANENT in reasons.values() else _UNORDERED_ACK_IDS)
        self.reasons = reasons
        ends = itertools.accumulate(len(each) + len(reason) + _FRAME for each, reason in reasons.items())
        fit = len(reasons) if names_all else sum(1 for end in ends if end <= MOST_NAMED)
        self.named = dict(itertools.islice(reasons.items(), fit))
        gone = {each for each, reason in self.named.items() if reason == PERMANENT}
        self.code = Code.INVALID_ARGUMENT if gone >= set(asked) else Code.ABORTED


class CallRefusal(NamedTuple):
    """Code, text and metadata that end a call."""

    code: grpc.StatusCode
    text: str
    metadata: tuple[tuple[str, bytes], ...] = ()


class EndedElsewhere(Exception):
    """Another node has refused a call that was forwarded to it."""

    def __init__(self, refused: CallRefusal) -> None:
        self.refused = refused


def refusal(error: BaseException, leaf: str = "", *, on_stream: bool = False) -> CallRefusal:
    """Return the refusal for an error; `leaf` is the last part of the resource name.

    A stream never ends with RESOURCE_EXHAUSTED, which clients interpret in opposite ways. Every refusal has details:
    with exactly-once delivery the library for Python takes an error without details for success.
    """
    code, text = _code_and_text(error, leaf)
    if on_stream and code is Code.RESOURCE_EXHAUSTED:
        code = Code.UNAVAILABLE
    text = text[:MOST_TEXT]
    status = status_pb2.Status(code=code.value[0], message=text)
    if isinstance(error, FailedAckIds) and error.named:
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason=_REASON, domain=_DOMAIN, metadata=error.named))
    return CallRefusal(code, text, ((DETAILS, status.SerializeToString()),))


def _code_and_text(error: BaseException, leaf: str) -> tuple[grpc.StatusCode, str]:
    if isinstance(error, FailedAckIds):
        return error.code, error.message
    if isinstance(error, MemoryError):
        return Code.UNAVAILABLE, "Too little memory for this request now"
    if not isinstance(error, errors.AmsError):
        return Code.INTERNAL, "Internal error"
    code = next(CODES[base] for base in type(error).__mro__ if base in CODES)
    if isinstance(error, errors.NotFound):
        return code, f"Resource not found (resource={error.leaf if isinstance(error, Missing) else leaf})."
    if isinstance(error, errors.AlreadyExists):
        return code, f"Resource already exists in the project (resource={leaf})."
    return code, TEXTS.get(error.message, error.message)


def current_task() -> "asyncio.Task[Any]":
    """Return the task of the present call, which ends when its answer is sent."""
    task = asyncio.current_task()
    assert task is not None
    return task


async def end(context: "grpc.aio.ServicerContext[Any, Any]", refused: CallRefusal) -> NoReturn:
    """End a call with an error.

    gRPC keeps the exception with the call, and its traceback keeps the frames with the request and the call: a
    reference cycle. So the traceback is cleared when the call's task is done.
    """
    try:
        await context.abort(refused.code, refused.text, refused.metadata)
    except grpc.aio.AbortError as aborted:
        current_task().add_done_callback(partial(forget, aborted))
        raise
    raise AssertionError("a call that was aborted is over")


def forget(error: BaseException | None, _task: object = None) -> None:
    """Clear the tracebacks and causes of an error, which nobody reads any more, to free their frames."""
    while error is not None:
        before, error.__traceback__ = error.__cause__ or error.__context__, None
        error.__cause__ = error.__context__ = None
        error = before
