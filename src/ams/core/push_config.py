"""Push configuration: where a subscription's messages are delivered to, and the rules by which it changes.

Pure values; the rules are those of HTTP contract 13.1 to 13.3. A verified configuration is one that is delivered:
there is no second mark for it, so what is wanted and what is stored cannot differ.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import urlsplit

from ams.core import google_push
from ams.core.errors import InvalidInput
from ams.core.google_push import GoogleForm
from ams.core.urls import has_credentials, is_loopback

HTTP_ENDPOINT, MATTERMOST = "http_endpoint", "mattermost"
AUTOGEN, DISABLED = "autogen", "disabled"
LINEAR, SLOWSTART, EXPONENTIAL = "linear", "slowstart", "exponential"

DEFAULT_PERIOD = 3000
"""Milliseconds between two tries."""
DEFAULT_BASE = 1000
"""Milliseconds from which exponential grows."""
GOOGLE_PERIOD = 1000
"""Milliseconds: the first wait after a failure of what is delivered in Google's form, where no retry policy says it."""
MOST_PERIOD = 2**32 - 1
"""Milliseconds, seven weeks: the longest period that a push server can be told (push contract 2). A longer one is kept
as it is, and delivering goes by this."""
MAX_MESSAGES = 10_000
"""Most messages one delivery may hold (push contract 15, P32)."""
MAX_ATTEMPTS = 1000
"""Most refusals of a message before it is put aside."""
DEFAULT_ATTEMPTS = 5
MAX_OUTSTANDING = 1000
"""Most deliveries of a parallel subscription under way at a time."""
DEFAULT_OUTSTANDING = 10

BAD_URL = "Push endpoint should be addressed by a valid https url"
URL_CREDENTIALS = (
    "Push endpoint should be a url without a user and password: set authorizationHeader to 'autogen', and let the"
    " receiver look at its value"
)
BAD_HEADER = "Authorization header type can only be of 'autogen' or 'disabled' type"
BAD_TYPE = "Push configuration type can only be of 'http_endpoint' or 'mattermost'"
BAD_RETRY = "Retry policy can only be of 'linear' or 'slowstart' type"
NO_MATTERMOST_URL = "Field mattermostUrl cannot be empty"
MATTERMOST_CREDENTIALS = (
    "Field mattermostUrl should be a url without a user and password: the address of an incoming webhook is enough"
)
BAD_COUNT = f"Field maxMessages should be between 1 and {MAX_MESSAGES}"
BAD_ATTEMPTS = f"Field maxDeliveryAttempts should be between 1 and {MAX_ATTEMPTS}"
BAD_OUTSTANDING = f"Field maxOutstanding should be between 1 and {MAX_OUTSTANDING}"
NOT_PARALLEL = "Field maxOutstanding needs a subscription of type parallel"
PARALLEL_DEAD_LETTERS = (
    "A subscription of type parallel has a deadLetterPolicy in the place of pushConfig.deadLetterTopic"
)
NO_DEAD_LETTER_TOPIC = "Field maxDeliveryAttempts needs a deadLetterTopic"

_LONGEST_NAME = 253
"""Characters of a host name (RFC 1035)."""

_PERIODS = {LINEAR: DEFAULT_PERIOD, SLOWSTART: 0, EXPONENTIAL: DEFAULT_BASE}
"""What the period of a policy is when nothing is said; 0: it has none."""

Secret = Callable[[], str]
"""Makes a fresh text that cannot be guessed, for a verification hash or a header value."""


@dataclass(frozen=True, slots=True)
class AskedPush:
    """What a request says about push; empty text, 0 and None mean: not said."""

    type: str = ""
    endpoint: str = ""
    max_messages: int = 0
    header_type: str = ""
    retry_policy: str = ""
    retry_period: int = 0
    """Milliseconds."""
    mattermost_url: str = field(default="", repr=False)
    mattermost_username: str = ""
    mattermost_channel: str = ""
    base64_decode: bool | None = None
    dead_letter_topic: str = ""
    """A reference `projects/P/topics/T` of the subscription's project, or a name.
    The caller replaces it by the name of the existing topic."""
    max_delivery_attempts: int = 0
    max_outstanding: int = 0
    google: GoogleForm | None = None
    """Google's form, to `endpoint`; nothing else is looked at then."""


@dataclass(frozen=True, slots=True)
class PushConfig:
    """A push configuration as it is stored; what belongs to the other type is empty."""

    type: str
    endpoint: str = ""
    max_messages: int = 1
    header_type: str = ""
    """Empty for mattermost, and in records that came from elsewhere."""
    header_value: str = field(default="", repr=False)
    """What deliveries carry in `Authorization`; empty: no such header."""
    retry_policy: str = LINEAR
    retry_period: int = DEFAULT_PERIOD
    """Milliseconds: between two tries of linear, the base from which exponential grows; 0 for slowstart."""
    verification_hash: str = field(default="", repr=False)
    """What the endpoint has to answer to prove that its owner agreed to get messages."""
    verified: bool = False
    """Whether messages are delivered: to an endpoint that was verified, to any mattermost, or in Google's form."""
    mattermost_url: str = field(default="", repr=False)
    mattermost_username: str = ""
    mattermost_channel: str = ""
    base64_decode: bool = False
    dead_letter_topic: str = ""
    """Name of the topic, in the same project, for messages that are refused; empty: they are retried without limit."""
    max_delivery_attempts: int = 0
    """Refusals after which a message goes there; 0 without a dead letter topic."""
    max_outstanding: int = 0
    """Of a parallel subscription: deliveries that may be under way at a time; 0: `DEFAULT_OUTSTANDING`."""
    google: GoogleForm | None = None
    """Google's form, for `HTTP_ENDPOINT`; None: AMS's."""
    revision: int = field(default=0, compare=False)
    """Raised by each modification, also by one that changes nothing else: the delivery begins anew."""

    def without_secrets(self) -> "PushConfig":
        """Return what those may see who only consume (HTTP contract 17.2, A14)."""
        return replace(self, header_value="", verification_hash="")


class Header(NamedTuple):
    """Type and value of the authorization header."""

    type: str
    value: str


def created(asked: AskedPush, secret: Secret, *, parallel: bool = False, local_http: bool = False) -> PushConfig:
    """Return the configuration of a new subscription; raise `InvalidInput` in the order of HTTP contract 13.2.

    `local_http` permits `http` to this machine in Google's form.
    """
    if asked.google is not None:
        return _in_googles_form(asked.endpoint, asked.google, local_http)
    asked = _typed(asked)
    _check_target(asked)
    _check_retry(asked)
    _check_dead_letters(asked)
    _check_type(asked, parallel)
    return _configured(None, asked, secret)


def modified(
    existing: PushConfig | None, asked: AskedPush, secret: Secret, *, parallel: bool = False, local_http: bool = False
) -> PushConfig:
    """Return what takes the place of `existing`, None for a pull subscription (HTTP contract 13.3).

    Raises `InvalidInput`, for the retry policy first.
    """
    revision = existing.revision + 1 if existing else 0
    if asked.google is not None:
        return replace(_in_googles_form(asked.endpoint, asked.google, local_http), revision=revision)
    asked = _typed(asked)
    _check_retry(asked)
    _check_target(asked)
    _check_dead_letters(asked)
    _check_type(asked, parallel)
    # Nobody proved to own an endpoint of Google's form, so nothing of that is kept.
    kept = existing if existing is not None and existing.google is None else None
    return replace(_configured(kept, asked, secret), revision=revision)


def verified(config: PushConfig) -> PushConfig:
    """Return the configuration of an endpoint that showed its hash; nothing else changes (17.2, A10)."""
    return replace(config, verified=True)


def _in_googles_form(endpoint: str, form: GoogleForm, local_http: bool) -> PushConfig:
    """Return a configuration that is delivered at once: receivers know who sends by its token, if they look at all."""
    google_push.check(form, endpoint, is_permitted=is_https(endpoint) or (local_http and is_local_http(endpoint)))
    return PushConfig(
        HTTP_ENDPOINT,
        endpoint=endpoint,
        header_type=DISABLED,
        retry_policy=LINEAR,
        retry_period=GOOGLE_PERIOD,
        verified=True,
        google=form,
    )


def _typed(asked: AskedPush) -> AskedPush:
    """Name the type that the official client library leaves out (push contract 13.5)."""
    if asked.type:
        return asked
    if asked.endpoint:
        return replace(asked, type=HTTP_ENDPOINT)
    return replace(asked, type=MATTERMOST) if asked.mattermost_url else asked


def _check_target(asked: AskedPush) -> None:
    if asked.type == HTTP_ENDPOINT:
        _check_endpoint(asked)
    elif asked.type == MATTERMOST:
        if not asked.mattermost_url:
            raise InvalidInput(NO_MATTERMOST_URL)
        if has_credentials(asked.mattermost_url):
            raise InvalidInput(MATTERMOST_CREDENTIALS)
    else:
        raise InvalidInput(BAD_TYPE)


def _check_endpoint(asked: AskedPush) -> None:
    if has_credentials(asked.endpoint):
        raise InvalidInput(URL_CREDENTIALS)
    if not is_https(asked.endpoint):
        raise InvalidInput(BAD_URL)
    if asked.header_type not in ("", AUTOGEN, DISABLED):
        raise InvalidInput(BAD_HEADER)
    if not 0 <= asked.max_messages <= MAX_MESSAGES:
        raise InvalidInput(BAD_COUNT)


def _check_retry(asked: AskedPush) -> None:
    if asked.retry_policy not in ("", *_PERIODS):
        raise InvalidInput(BAD_RETRY)


def _check_dead_letters(asked: AskedPush) -> None:
    """Look at what the contract does not know, after all that it does; whether the topic is there is seen later."""
    if not 0 <= asked.max_delivery_attempts <= MAX_ATTEMPTS:
        raise InvalidInput(BAD_ATTEMPTS)
    if asked.max_delivery_attempts and not asked.dead_letter_topic:
        raise InvalidInput(NO_DEAD_LETTER_TOPIC)


def _check_type(asked: AskedPush, parallel: bool) -> None:
    """Look at what only one type of subscriptions has."""
    if not 0 <= asked.max_outstanding <= MAX_OUTSTANDING:
        raise InvalidInput(BAD_OUTSTANDING)
    if asked.max_outstanding and not parallel:
        raise InvalidInput(NOT_PARALLEL)
    if asked.dead_letter_topic and parallel:
        raise InvalidInput(PARALLEL_DEAD_LETTERS)


def _configured(existing: PushConfig | None, asked: AskedPush, secret: Secret) -> PushConfig:
    policy = asked.retry_policy or LINEAR
    common = PushConfig(
        asked.type,
        retry_policy=policy,
        retry_period=_period(policy, asked.retry_period),
        base64_decode=_kept_decoding(existing, asked),
        dead_letter_topic=asked.dead_letter_topic,
        max_delivery_attempts=(asked.max_delivery_attempts or DEFAULT_ATTEMPTS) if asked.dead_letter_topic else 0,
        max_outstanding=asked.max_outstanding,
    )
    return _mattermost(common, asked) if asked.type == MATTERMOST else _endpoint(common, existing, asked, secret)


def _period(policy: str, asked: int) -> int:
    usual = _PERIODS[policy]
    return asked if usual and asked > 0 else usual


def _kept_decoding(existing: PushConfig | None, asked: AskedPush) -> bool:
    """Return whether data is decoded: as asked, else as it was (17.2, A10)."""
    if asked.base64_decode is None:
        return existing is not None and existing.base64_decode
    return asked.base64_decode


def _mattermost(common: PushConfig, asked: AskedPush) -> PushConfig:
    return replace(
        common,
        verified=True,
        mattermost_url=asked.mattermost_url,
        mattermost_username=asked.mattermost_username,
        mattermost_channel=asked.mattermost_channel,
    )


def _endpoint(common: PushConfig, existing: PushConfig | None, asked: AskedPush, secret: Secret) -> PushConfig:
    header = _header(existing, asked.header_type, secret)
    same = existing is not None and existing.type == HTTP_ENDPOINT and existing.endpoint == asked.endpoint
    return replace(
        common,
        endpoint=asked.endpoint,
        max_messages=asked.max_messages or (existing.max_messages if existing else 1),
        header_type=header.type,
        header_value=header.value,
        verification_hash=existing.verification_hash if existing and same else secret(),
        verified=existing is not None and same and existing.verified,
    )


def _header(existing: PushConfig | None, asked: str, secret: Secret) -> Header:
    """Return the header by the table of HTTP contract 13.3; mattermost has none to keep (17.2, A11)."""
    if asked == DISABLED:
        return Header(DISABLED, "")
    if asked == AUTOGEN or existing is None or existing.type == MATTERMOST:
        return Header(AUTOGEN, secret())
    return Header(AUTOGEN, existing.header_value) if existing.header_type == AUTOGEN else Header(DISABLED, "")


def is_https(url: str) -> bool:
    """Return whether deliveries may go to a URL: absolute, https, with a host, without credentials.

    It is spelled so that no two programs read another host in it.
    """
    return _is_url(url, "https")


def is_local_http(url: str) -> bool:
    """Return whether a URL is as `is_https` wants it, but with http to this machine, by its name or address."""
    return _is_url(url, "http") and is_loopback(urlsplit(url).hostname or "")


def _is_url(url: str, scheme: str) -> bool:
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url or has_credentials(url):
        return False
    try:
        parts = urlsplit(url)
        return parts.scheme == scheme and _is_host(parts.hostname or "") and parts.port != 0
    except ValueError:  # a port that is none, half an IPv6 address
        return False


def _is_host(host: str) -> bool:
    """Whether this is an IPv6 address, which the URL was cut by, or a name of at most 253 characters without an empty
    or an overlong label."""
    name = host.removesuffix(".")
    return ":" in host or (len(name) <= _LONGEST_NAME and all(0 < len(label) < 64 for label in name.split(".")))


def authority(url: str) -> tuple[str, int]:
    """Return host and port of an http or https URL."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
