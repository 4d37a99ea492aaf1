"""The errors of all packages, as one tree.

Each surface has one table from these classes to its own answers: `ams.http.errors` for HTTP, `ams.cli` exit codes.
The text of an error is what the client or operator reads; it never holds a token, a payload or a secret.
"""

OUTCOME_UNKNOWN = "It is not known whether this was done: look before you ask again"
"""Message of `Unavailable` for a change whose commit failed or timed out and could not be undone."""


class AmsError(Exception):
    """Base class of all errors that this package raises on purpose."""

    retriable = False  # whether the same request may succeed later without being changed
    default_message = ""

    def __init__(self, message: str | None = None) -> None:
        self.message = self.default_message if message is None else message
        super().__init__(self.message)


class InvalidInput(AmsError):
    """The request is invalid; the message says why."""


def refuse_if(is_bad: object, message: str) -> None:
    """Raise `InvalidInput` with this message if `is_bad` is true."""
    if is_bad:
        raise InvalidInput(message)


class BadRequest(InvalidInput):
    """The request could not be parsed (contract 16, `BAD_REQUEST`)."""


class Unprocessable(InvalidInput):
    """A field of a well-formed request is invalid (authn contract 4)."""


class NotAuthenticated(AmsError):
    """No token, an unknown token, or a user without any role for this request."""

    default_message = "Unauthorized"


class UnknownToken(NotAuthenticated):
    """The token is unknown. The answer is that for a missing token; it counts as a failed login."""


class TokenRefused(UnknownToken):
    """The token has expired, or an issuer's token is not valid; the message says why (RFC 6750, 3.1).

    `later`: the same token may be accepted later, as the keys to verify it could not be fetched.
    """

    def __init__(self, message: str, *, later: bool = False) -> None:
        super().__init__(message)
        self.later = later


class NotAllowed(AmsError):
    """The user's roles or the access list do not allow this."""

    default_message = "Access to this resource is forbidden"


class CertificateRefused(NotAllowed):
    """A client's certificate is not trusted; the message says why (authn contract 9.3)."""


class NotFound(AmsError):
    """The resource does not exist."""


class NoMembers(NotFound):
    """Users for an access list are not members of the project; the message names them."""


class TopicGone(NotFound):
    """The topic does not exist (any more)."""

    default_message = "Topic doesn't exist"


class SubscriptionGone(NotFound):
    """The subscription does not exist (any more)."""

    default_message = "Subscription doesn't exist"


class NotAcceptable(AmsError):
    """The answer has no representation of the accepted media types."""


class AckTimeout(AmsError):
    """An acknowledgement came later than its deadline; the messages will be delivered again."""

    default_message = "ack timeout"


class AlreadyExists(AmsError):
    """The name is taken."""


class Conflict(AmsError):
    """The state of the resource does not allow this now."""


class KeyReused(Conflict):
    """An idempotency key was used again with other content; nothing was stored."""

    default_message = "Idempotency key reused with other content"


class ChangedMeanwhile(Conflict):
    """The resource has changed since the client read it; nothing was done."""

    default_message = "It was changed meanwhile: read it again, nothing was done"


class TooLarge(AmsError):
    """A message or a body is over the limit; nothing was stored."""

    default_message = "Message size is too large"


class UnknownCoding(AmsError):
    """The content coding of a body is not supported; nothing was done."""

    default_message = "Content-Encoding can only be gzip"


class QuotaExceeded(AmsError):
    """The request exceeds a quota of the project; nothing was done."""


class Overloaded(AmsError):
    """The service refuses work to protect what it has accepted."""

    retriable = True


class RateLimited(Overloaded):
    """The request rate of a user or project is over its limit; nothing was done."""

    default_message = "Too many requests"


class OwnedElsewhere(Overloaded):
    """Another node owns the subscription; nothing was done. Send the request to that node."""

    def __init__(
        self, message: str = "", *, subscription: str = "", node: str = "", url: str = "", pubsub: str = ""
    ) -> None:
        """`url` and `pubsub` (HOST:PORT of its Google Pub/Sub port) are addresses of that node; empty: not known."""
        how = "" if url else "; it does not say how it is reached: set node_url on every node"
        super().__init__(message or f"Another node works on this subscription now{how}")
        self.subscription, self.node, self.url, self.pubsub = subscription, node, url, pubsub


class Unavailable(AmsError):
    """An engine is unavailable: retry. Nothing was done, unless the message is `OUTCOME_UNKNOWN`."""

    retriable = True
    default_message = "Backend Error"


class LogUnavailable(Unavailable):
    """The log cannot store or read now (disk full, failed sync, broker away)."""


class OutcomeUnknown(LogUnavailable):
    """A write or sync failed and could not be undone: after a restart it may be there or not."""

    default_message = (
        "Backend Error: it is not known whether this was done; repeat it, a publish with the same Idempotency-Key"
    )


class CursorsUnavailable(Unavailable):
    """A cursor could not be read or stored; `ams.storage.cursors.base` defines its state then."""


class RegistryUnavailable(Unavailable):
    """The registry could not be read or written (contract 16)."""

    default_message = "Internal error while querying datastore"


class ServiceFailed(Unavailable):
    """A request to another service failed. Its error text is not passed on (authn contract 15, A17)."""


class ServiceTimeout(ServiceFailed):
    """A request to another service timed out."""


class Damaged(AmsError):
    """Stored bytes do not match their checksum. The message names file and position; the bytes are never served."""


class Unusable(AmsError):
    """The service cannot start; the message is one line that says what to do."""


class BadDocument(Unusable):
    """A file of declarations is invalid or unreadable; the message names file and line."""

    def __init__(self, message: str, line: int | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.line = line  # from 1; None for the file as a whole
        self.reason = reason or message  # the message without the place


class BadSettings(Unusable):
    """A setting, or a file that it names, is invalid: the operator must change it."""
