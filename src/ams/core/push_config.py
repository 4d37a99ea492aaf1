"""Push configuration of a subscription, and the rules by which it changes (HTTP contract 13.1 to 13.3).

Only verified configurations are delivered. In the form of Google's Pub/Sub a request has one message, and each error
status counts as a nack (`docs/reference/pubsub.md`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from ams.core.errors import InvalidInput, refuse_if
from ams.core.urls import has_credentials, is_loopback

HTTP_ENDPOINT, MATTERMOST = "http_endpoint", "mattermost"
AUTOGEN, DISABLED = "autogen", "disabled"
LINEAR, SLOWSTART, EXPONENTIAL = "linear", "slowstart", "exponential"

DEFAULT_PERIOD = 3000  # milliseconds between two attempts
DEFAULT_BASE = 1000  # milliseconds: first wait of exponential backoff
GOOGLE_PERIOD = 1000  # milliseconds: first wait in Google's form without a retry policy
MAX_PERIOD_MS = 2**32 - 1
"""Longest period that a push server accepts (push contract 2), seven weeks. Longer ones are stored, but capped at
delivery."""
MAX_MESSAGES = 10_000  # messages per delivery (push contract 15, P32)
MAX_ATTEMPTS = 1000  # refusals of a message before it goes to the dead letter topic
DEFAULT_ATTEMPTS = 5
MAX_OUTSTANDING = 1000  # concurrent deliveries of a parallel subscription
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

GOOGLE_VERSION = "x-goog-version"  # the one attribute that a push configuration may have
_VERSIONS = ("v1", "v1beta1", "v1beta2")
_LONGEST_TEXT = 2048  # characters of an endpoint, an audience or an address
_LONGEST_NAME = 253  # characters of a host name (RFC 1035)

_PERIODS = {LINEAR: DEFAULT_PERIOD, SLOWSTART: 0, EXPONENTIAL: DEFAULT_BASE}  # default period of each policy; 0: none

Secret = Callable[[], str]  # makes a random secret for a verification hash or a header value


@dataclass(frozen=True, slots=True)
class GoogleForm:
    """Form of deliveries as in Google's Pub/Sub."""

    is_wrapped: bool = True  # the body is JSON with the message; else the data alone
    write_metadata: bool = False  # without wrapper: send the metadata in headers
    service_account: str = ""  # mail address in the OpenID Connect token of a delivery; empty: no token
    audience: str = ""  # of that token; empty: the endpoint
    version: str = ""  # as requested, one of three with the same form; empty: not given


@dataclass(frozen=True, slots=True)
class AskedPush:
    """Push configuration in a request; empty text, 0 and None: not given."""

    type: str = ""
    endpoint: str = ""
    max_messages: int = 0
    header_type: str = ""
    retry_policy: str = ""
    retry_period: int = 0  # milliseconds
    mattermost_url: str = field(default="", repr=False)
    mattermost_username: str = ""
    mattermost_channel: str = ""
    base64_decode: bool | None = None
    dead_letter_topic: str = ""
    """Name, or `projects/P/topics/T` of the subscription's project. The caller replaces it by the topic's name."""
    max_delivery_attempts: int = 0
    max_outstanding: int = 0
    google: GoogleForm | None = None  # Google's form, to `endpoint`; other fields are ignored


@dataclass(frozen=True, slots=True)
class PushConfig:
    """A stored push configuration; fields of the other type are empty."""

    type: str
    endpoint: str = ""
    max_messages: int = 1
    header_type: str = ""  # empty for mattermost, and in imported records
    header_value: str = field(default="", repr=False)  # `Authorization` of deliveries; empty: no such header
    retry_policy: str = LINEAR
    retry_period: int = DEFAULT_PERIOD  # milliseconds between two attempts, or the base of exponential; 0 for slowstart
    verification_hash: str = field(default="", repr=False)  # the endpoint must answer with it to prove consent
    verified: bool = False  # messages are delivered; mattermost and Google's form need no check
    mattermost_url: str = field(default="", repr=False)
    mattermost_username: str = ""
    mattermost_channel: str = ""
    base64_decode: bool = False
    dead_letter_topic: str = ""  # name of a topic of the same project for refused messages; empty: no limit of retries
    max_delivery_attempts: int = 0  # refusals after which a message goes there; 0 without a dead letter topic
    max_outstanding: int = 0  # concurrent deliveries of a parallel subscription; 0: `DEFAULT_OUTSTANDING`
    google: GoogleForm | None = None  # Google's form, for `HTTP_ENDPOINT`; None: AMS's
    revision: int = field(default=0, compare=False)  # grows with each modification, which restarts the delivery

    def without_secrets(self) -> "PushConfig":
        """Return the part that consumers may see (HTTP contract 17.2, A14)."""
        return replace(self, header_value="", verification_hash="")


def new_push_config(
    asked: AskedPush, secret: Secret, *, parallel: bool = False, local_http: bool = False
) -> PushConfig:
    """Return a new subscription's configuration. Raises `InvalidInput` in the order of HTTP contract 13.2."""
    return _requested_config(None, asked, secret, parallel, local_http, is_new=True)


def modify_push_config(
    existing: PushConfig | None, asked: AskedPush, secret: Secret, *, parallel: bool = False, local_http: bool = False
) -> PushConfig:
    """Return the configuration that replaces `existing` (HTTP contract 13.3). Checks the retry policy first."""
    config = _requested_config(existing, asked, secret, parallel, local_http, is_new=False)
    return replace(config, revision=existing.revision + 1 if existing else 0)


def _requested_config(
    existing: PushConfig | None, asked: AskedPush, secret: Secret, parallel: bool, local_http: bool, *, is_new: bool
) -> PushConfig:
    if (form := asked.google) is not None:
        is_permitted = is_https(asked.endpoint) or (local_http and is_local_http(asked.endpoint))
        check_google_form(form, asked.endpoint, is_permitted=is_permitted)
        # Verified at once: receivers authenticate deliveries by their token.
        return PushConfig(
            HTTP_ENDPOINT, asked.endpoint, header_type=DISABLED, retry_period=GOOGLE_PERIOD, verified=True, google=form
        )
    if not asked.type:  # which the official client library omits (push contract 13.5)
        asked = replace(asked, type=HTTP_ENDPOINT if asked.endpoint else MATTERMOST if asked.mattermost_url else "")
    is_bad_retry = asked.retry_policy not in ("", *_PERIODS)
    refuse_if(is_bad_retry and not is_new, BAD_RETRY)
    _check_target(asked)
    refuse_if(is_bad_retry, BAD_RETRY)
    # Fields beyond the contract come after those of the contract. The topic is not looked up.
    refuse_if(not 0 <= asked.max_delivery_attempts <= MAX_ATTEMPTS, BAD_ATTEMPTS)
    refuse_if(asked.max_delivery_attempts and not asked.dead_letter_topic, NO_DEAD_LETTER_TOPIC)
    refuse_if(not 0 <= asked.max_outstanding <= MAX_OUTSTANDING, BAD_OUTSTANDING)
    refuse_if(asked.max_outstanding and not parallel, NOT_PARALLEL)
    refuse_if(asked.dead_letter_topic and parallel, PARALLEL_DEAD_LETTERS)
    # Google's form has no proof of ownership, so its verification is not kept.
    return _stored_config(existing if existing is not None and existing.google is None else None, asked, secret)


def _check_target(asked: AskedPush) -> None:
    if asked.type == HTTP_ENDPOINT:
        refuse_if(has_credentials(asked.endpoint), URL_CREDENTIALS)
        refuse_if(not is_https(asked.endpoint), BAD_URL)
        refuse_if(asked.header_type not in ("", AUTOGEN, DISABLED), BAD_HEADER)
        refuse_if(not 0 <= asked.max_messages <= MAX_MESSAGES, BAD_COUNT)
    elif asked.type == MATTERMOST:
        refuse_if(not asked.mattermost_url, NO_MATTERMOST_URL)
        refuse_if(has_credentials(asked.mattermost_url), MATTERMOST_CREDENTIALS)
    else:
        raise InvalidInput(BAD_TYPE)


def _stored_config(existing: PushConfig | None, asked: AskedPush, secret: Secret) -> PushConfig:
    policy = asked.retry_policy or LINEAR
    period = asked.retry_period if _PERIODS[policy] and asked.retry_period > 0 else _PERIODS[policy]
    before = existing or PushConfig("")
    common = PushConfig(
        asked.type,
        retry_policy=policy,
        retry_period=period,
        base64_decode=before.base64_decode if asked.base64_decode is None else asked.base64_decode,  # 17.2, A10
        dead_letter_topic=asked.dead_letter_topic,
        max_delivery_attempts=(asked.max_delivery_attempts or DEFAULT_ATTEMPTS) if asked.dead_letter_topic else 0,
        max_outstanding=asked.max_outstanding,
    )
    if asked.type == MATTERMOST:
        url, user, channel = asked.mattermost_url, asked.mattermost_username, asked.mattermost_channel
        return replace(common, verified=True, mattermost_url=url, mattermost_username=user, mattermost_channel=channel)
    same = before.type == HTTP_ENDPOINT and before.endpoint == asked.endpoint
    header_type, header_value = _header(before, asked.header_type, secret)
    return replace(
        common,
        endpoint=asked.endpoint,
        max_messages=asked.max_messages or before.max_messages,
        header_type=header_type,
        header_value=header_value,
        verification_hash=before.verification_hash if same else secret(),
        verified=same and before.verified,
    )


def _header(before: PushConfig, asked: str, secret: Secret) -> tuple[str, str]:
    """Return type and value of the header by the table of HTTP contract 13.3 (mattermost: 17.2, A11)."""
    if asked == DISABLED:
        return DISABLED, ""
    if asked == AUTOGEN or before.type != HTTP_ENDPOINT:
        return AUTOGEN, secret()
    return (AUTOGEN, before.header_value) if before.header_type == AUTOGEN else (DISABLED, "")


def google_version(attributes: Mapping[str, str]) -> str:
    """Return the version in the attributes, or empty. Raises `InvalidInput` for other attributes."""
    version = attributes.get(GOOGLE_VERSION, "")
    if set(attributes) - {GOOGLE_VERSION} or (attributes and version not in _VERSIONS):
        raise InvalidInput(
            f"Invalid push endpoint version given in the attributes: {GOOGLE_VERSION} is the only one, and v1, v1beta1"
            " or v1beta2 its value."
        )
    return version


def check_google_form(form: GoogleForm, endpoint: str, *, is_permitted: bool) -> None:
    """Raise `InvalidInput` if this cannot be delivered."""
    if has_credentials(endpoint):
        raise InvalidInput(
            "Invalid push endpoint given: it has a user and password in it. Leave them out, and give an oidc_token."
        )
    if not is_permitted or len(endpoint) > _LONGEST_TEXT:
        raise InvalidInput(
            f"Invalid push endpoint given (endpoint={endpoint[:_LONGEST_TEXT]})."
            " It must be a URL that begins with https."
        )
    for name, text in (("service_account_email", form.service_account), ("audience", form.audience)):
        if len(text) > _LONGEST_TEXT or not text.isprintable():
            raise InvalidInput(f"Invalid oidc_token given: its {name} is too long or cannot be printed.")
    refuse_if(form.audience and not form.service_account, "Invalid oidc_token given: it has no service_account_email.")


def is_https(url: str) -> bool:
    """Return whether a URL is absolute, https, without credentials, and unambiguous to parsers."""
    return _is_url(url, "https")


def is_local_http(url: str) -> bool:
    """Return whether a URL passes `is_https` except that it is http to this machine."""
    return _is_url(url, "http") and is_loopback(urlsplit(url).hostname or "")


def _is_url(url: str, scheme: str) -> bool:
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url or has_credentials(url):
        return False
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        name = host.removesuffix(".")
        is_name = len(name) <= _LONGEST_NAME and all(0 < len(label) < 64 for label in name.split("."))
        return parts.scheme == scheme and (":" in host or is_name) and parts.port != 0  # a colon: an IPv6 address
    except ValueError:  # invalid port or IPv6 address
        return False


def authority(url: str) -> tuple[str, int]:
    """Return host and port of an http or https URL."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
