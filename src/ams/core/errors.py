"""The errors of all packages, as one tree.

Each surface has one table from these classes to its own answers: `ams.http.errors` for HTTP, `ams.cli` exit codes.
The text of an error is what the client or operator reads; it never holds a token, a payload or a secret.
"""

OUTCOME_UNKNOWN = "It is not known whether this was done: look before you ask again"
"""The text of an `Unavailable` for a change whose commit failed, or was not answered, and could not be undone."""


class AmsError(Exception):
    """The root of everything this package raises on purpose."""

    retriable = False  # whether the same request may succeed later without being changed
    default_message = ""

    def __init__(self, message: str | None = None) -> None:
        self.message = self.default_message if message is None else message
        super().__init__(self.message)


class InvalidInput(AmsError):
    """The request says something that cannot be; the message says what."""


class BadRequest(InvalidInput):
    """The request could not be read at all (contract 16, `BAD_REQUEST`)."""


class Unprocessable(InvalidInput):
    """The fields of a request could be read, and one says what cannot be (authn contract 4)."""


class NotAuthenticated(AmsError):
    """No token, an unknown token, or a user without any role for this request."""

    default_message = "Unauthorized"


class UnknownToken(NotAuthenticated):
    """A token was given that is unknown; it is answered as no token is, and counted as a failed login."""


class TokenRefused(UnknownToken):
    """A token that has expired, or an issuer's token that is not valid; the message says why (RFC 6750, 3.1).

    `later`: the same token may be accepted later. The keys to check it could not be fetched.
    """

    def __init__(self, message: str, *, later: bool = False) -> None:
        super().__init__(message)
        self.later = later


class NotAllowed(AmsError):
    """A known user whose roles, or whose absence from an access list, do not allow this."""

    default_message = "Access to this resource is forbidden"


class CertificateRefused(NotAllowed):
    """A client's certificate is not trusted; the message says why (authn contract 9.3)."""


class NotFound(AmsError):
    """The resource does not exist."""


class NoMembers(NotFound):
    """Users who are to be on an access list are no members of the project; the message names them."""


class TopicGone(NotFound):
    """There is no such topic, or no longer."""

    default_message = "Topic doesn't exist"


class SubscriptionGone(NotFound):
    """There is no such subscription, or no longer."""

    default_message = "Subscription doesn't exist"


class NotAcceptable(AmsError):
    """The answer cannot be given in the form that was asked for."""


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
    """A body comes in a coding that is not undone here; nothing was done."""

    default_message = "Content-Encoding can only be gzip"


class QuotaExceeded(AmsError):
    """A project has as much of something as its quota allows; nothing was done."""


class Overloaded(AmsError):
    """The service refuses work to protect what it has accepted."""

    retriable = True


class RateLimited(Overloaded):
    """A user, or all users of a project, ask more often than the operator allows; nothing was done."""

    default_message = "Too many requests"


class OwnedElsewhere(Overloaded):
    """Another node works on the subscription now; nothing was done. The request is for that node."""

    def __init__(
        self, message: str = "", *, subscription: str = "", node: str = "", url: str = "", pubsub: str = ""
    ) -> None:
        """`url` is how that node is reached, `pubsub` HOST:PORT of its Google Pub/Sub port; empty: it does not say."""
        how = "" if url else "; it does not say how it is reached: set node_url on every node"
        super().__init__(message or f"Another node works on this subscription now{how}")
        self.subscription, self.node, self.url, self.pubsub = subscription, node, url, pubsub


class Unavailable(AmsError):
    """An engine cannot do its work now; trying again is right. Nothing was done, but with `OUTCOME_UNKNOWN`."""

    retriable = True
    default_message = "Backend Error"


class LogUnavailable(Unavailable):
    """The log cannot store or read now (disk full, failed sync, broker away)."""


class OutcomeUnknown(LogUnavailable):
    """A write or sync failed, and what it left behind could not be undone: a restart may find it done or not done."""

    default_message = (
        "Backend Error: it is not known whether this was done; repeat it, a publish with the same Idempotency-Key"
    )


class CursorsUnavailable(Unavailable):
    """A cursor could not be read or stored (`ams.storage.cursors.base` says where it stands then)."""


class RegistryUnavailable(Unavailable):
    """The registry could not be read or written (contract 16)."""

    default_message = "Internal error while querying datastore"


class ServiceFailed(Unavailable):
    """A request to another service failed; the text of its error is not passed on (authn contract 15, A17)."""


class ServiceTimeout(ServiceFailed):
    """A request to another service timed out."""


class Damaged(AmsError):
    """Stored bytes do not match their checksum; they are reported with file and position and never served."""


class Unusable(AmsError):
    """The service cannot start with what it was given; the message is one line with the way out."""


class BadDocument(Unusable):
    """A file of declarations says what cannot be, or cannot be read; the message names file and line."""

    def __init__(self, message: str, line: int | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.line = line  # from 1; None for the file as a whole
        self.reason = reason or message  # the message without the place


class BadSettings(Unusable):
    """A setting, or a file that one names, cannot be used: the operator must change it."""
