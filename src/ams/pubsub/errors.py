"""One table from our errors to codes and texts of Google's.

Clients decide by the code alone, with three exceptions: what `FailedAckIds` says of each id, and two texts that are
never sent from here. Scripts match the texts of a resource that is missing or there already, so these are Google's.
"""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
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
MOST_NAMED = 7_000  # bytes of ids that an error names, which is less than the 8 KiB that clients take by default
_FRAME = 8  # bytes around an id there
MOST_TEXT = 1000  # characters of an error's text: some are made of what was sent
Code = grpc.StatusCode

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
}
"""The nearest class in an error's ancestry decides. No permanent failure is INTERNAL or UNKNOWN: a publisher of a key
would try it for ever. An error that may be asked again is UNAVAILABLE, which all clients do by themselves."""

TEXTS: Mapping[str, str] = {
    parallel_options.BAD_BACKOFF: (
        "The fields retry_policy.minimum_backoff and retry_policy.maximum_backoff must be between 0s and 600s."
    ),
    parallel_options.BAD_BACKOFFS: (
        "The field retry_policy.minimum_backoff (10s if absent) must not be more than retry_policy.maximum_backoff."
    ),
}
"""Texts that are used here instead of one that spells fields as the HTTP API does."""


class NotSupported(errors.InvalidInput):
    """Something of Google's that there is not here; the message names it."""


class Missing(errors.NotFound):
    """A resource that a request names beside the one it is about, or its project."""

    def __init__(self, leaf: str, message: str = "") -> None:
        super().__init__(message)
        self.leaf = leaf


class FailedAckIds(errors.AckTimeout):
    """With exactly-once delivery: these ids count no more, or not yet; what was asked for the others is done.

    Unless all ids of the call are named and count no more it is ABORTED: the libraries for Python, Go and Node ask
    again then for those that are not, and learn that they are done, or are told of more that are not; they take any
    other code for a failure of all. The library for Java takes all that are not named for done, whatever the code.
    """

    def __init__(self, reasons: Mapping[str, str], asked: Sequence[str] = (), *, names_all: bool = False) -> None:
        """`reasons`: why each id failed. `asked`: all ids of the call. Without `names_all` as many are named as fit."""
        super().__init__(_INVALID_ACK_IDS if PERMANENT in reasons.values() else _UNORDERED_ACK_IDS)
        self.reasons = reasons
        ends = itertools.accumulate(len(each) + len(reason) + _FRAME for each, reason in reasons.items())
        fit = len(reasons) if names_all else sum(1 for end in ends if end <= MOST_NAMED)
        self.named = dict(itertools.islice(reasons.items(), fit))
        gone = {each for each, reason in self.named.items() if reason == PERMANENT}
        self.code = Code.INVALID_ARGUMENT if gone >= set(asked) else Code.ABORTED


class Refusal(NamedTuple):
    """An error as a call ends with it."""

    code: grpc.StatusCode
    text: str
    metadata: tuple[tuple[str, bytes], ...] = ()


def refusal(error: BaseException, leaf: str = "", *, on_stream: bool = False) -> Refusal:
    """Return what a call ends with; `leaf` is the last part of the name of what it is about.

    What ends a stream is never RESOURCE_EXHAUSTED, which means opposite things to different clients. Each has details:
    with exactly-once delivery the library for Python takes an error without any for success.
    """
    code, text = _said(error, leaf, on_stream=on_stream)
    text = text[:MOST_TEXT]
    named = error.named if isinstance(error, FailedAckIds) else {}
    return Refusal(code, text, ((DETAILS, _details(code, text, named)),))


def _said(error: BaseException, leaf: str, *, on_stream: bool) -> tuple[grpc.StatusCode, str]:
    if isinstance(error, NotSupported):
        return Code.UNIMPLEMENTED, error.message
    if isinstance(error, FailedAckIds):
        return error.code, error.message
    if isinstance(error, MemoryError):
        return Code.UNAVAILABLE, "Too little memory for this request now"
    if not isinstance(error, errors.AmsError):
        return Code.INTERNAL, "Internal error"
    code = next(CODES[base] for base in type(error).__mro__ if base in CODES)
    if on_stream and code is Code.RESOURCE_EXHAUSTED:
        code = Code.UNAVAILABLE
    if isinstance(error, Missing):
        leaf = error.leaf
    if isinstance(error, errors.NotFound):
        return code, f"Resource not found (resource={leaf})."
    if isinstance(error, errors.AlreadyExists):
        return code, f"Resource already exists in the project (resource={leaf})."
    return code, TEXTS.get(error.message, error.message)


def _details(code: grpc.StatusCode, text: str, failed_ids: Mapping[str, str]) -> bytes:
    status = status_pb2.Status(code=code.value[0], message=text)
    if failed_ids:
        status.details.add().Pack(error_details_pb2.ErrorInfo(reason=_REASON, domain=_DOMAIN, metadata=failed_ids))
    found: bytes = status.SerializeToString()
    return found


def current_task() -> "asyncio.Task[Any]":
    """Return the task of the call at work, which is done when its answer is sent."""
    task = asyncio.current_task()
    assert task is not None
    return task


async def end(context: "grpc.aio.ServicerContext[Any, Any]", refused: Refusal) -> NoReturn:
    """End a call with an error.

    gRPC keeps what it raises for that with the call, and what the frames on its way hold is kept with it: the request,
    and the call itself, a cycle. So it lets go of them when the call's task is done.
    """
    try:
        await context.abort(refused.code, refused.text, refused.metadata)
    except grpc.aio.AbortError as aborted:
        current_task().add_done_callback(partial(forget, aborted))
        raise
    raise AssertionError("a call that was aborted is over")


def forget(error: BaseException | None, _task: object = None) -> None:
    """Let an error go of the frames that it came through, and of the errors before it, which nobody reads any more."""
    while error is not None:
        before, error.__traceback__ = error.__cause__ or error.__context__, None
        error.__cause__ = error.__context__ = None
        error = before
