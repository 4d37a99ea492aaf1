"""Push configurations (HTTP contract 13.1 to 13.3, 17.2), URLs, and options of parallel subscriptions (19.1)."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.engine.default import DefaultDialect

from ams.core.clock import Milliseconds, seconds_span, seconds_text
from ams.core.errors import InvalidInput
from ams.core.parallel_options import (
    MAX_BACKOFF,
    MAX_RETENTION,
    MIN_RETENTION,
    MIN_TTL,
    DeadLetterPolicy,
    ParallelOptions,
    RetryPolicy,
    check,
)
from ams.core.push_config import (
    BAD_ATTEMPTS,
    BAD_COUNT,
    BAD_HEADER,
    BAD_OUTSTANDING,
    BAD_RETRY,
    BAD_TYPE,
    BAD_URL,
    GOOGLE_VERSION,
    MATTERMOST_CREDENTIALS,
    NO_DEAD_LETTER_TOPIC,
    NO_MATTERMOST_URL,
    NOT_PARALLEL,
    PARALLEL_DEAD_LETTERS,
    URL_CREDENTIALS,
    AskedPush,
    GoogleForm,
    PushConfig,
    authority,
    google_version,
    is_https,
    is_local_http,
    modify_push_config,
    new_push_config,
)
from ams.core.urls import has_credentials, is_http_url, without_credentials
from ams.storage.registry.tables import subscriptions

URL = "https://receiver.example/in"


def numbered_secrets() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"secret-{next(numbers)}"


asks = st.builds(
    AskedPush, type=st.sampled_from(["", "http_endpoint", "mattermost", "smtp"]),
    endpoint=st.sampled_from(["", URL, "https://other.example:8443/", "http://receiver.example/in"]),
    max_messages=st.sampled_from([0, 1, 100, -1, 10_001]),
    header_type=st.sampled_from(["", "autogen", "disabled", "basic"]),
    retry_policy=st.sampled_from(["", "linear", "slowstart", "exponential", "never"]),
    mattermost_url=st.sampled_from(["", "https://chat.example/hooks/x"]),
    base64_decode=st.sampled_from([None, False, True]), dead_letter_topic=st.sampled_from(["", "dead"]),
    max_delivery_attempts=st.sampled_from([0, 1, 1000, -1, 1001]),
)  # fmt: skip
common = {
    "retry_policy": st.sampled_from(["", "linear", "slowstart", "exponential"]), "retry_period": st.integers(-5, 5000),
    "mattermost_username": st.sampled_from(["", "bot"]), "base64_decode": st.sampled_from([None, False, True]),
}  # fmt: skip
good = st.builds(
    AskedPush, type=st.sampled_from(["", "http_endpoint"]),
    endpoint=st.sampled_from([URL, "https://other.example:8443/"]), max_messages=st.sampled_from([0, 1, 100]),
    header_type=st.sampled_from(["", "autogen", "disabled"]), **common,
) | st.builds(
    AskedPush, type=st.just("mattermost"), endpoint=st.sampled_from(["", URL]),
    mattermost_url=st.just("https://chat.example/hooks/x"), **common,
)  # fmt: skip
"""Valid configurations."""


@st.composite
def histories(draw: st.DrawFn) -> PushConfig | None:
    """Histories of a subscription: any number of changes, verified in between or not."""
    config: PushConfig | None = None
    secret = numbered_secrets()
    for asked, verify in draw(st.lists(st.tuples(good, st.booleans()), max_size=4)):
        config = modify_push_config(config, asked, secret)
        if verify:
            config = replace(config, verified=True)
    return config


@given(histories(), good)
def test_a_changed_configuration_has_only_what_its_type_has(existing: PushConfig | None, asked: AskedPush) -> None:
    config = modify_push_config(existing, asked, lambda: "new")

    if config.type == "http_endpoint":
        assert (config.mattermost_url, config.mattermost_username, config.mattermost_channel) == ("", "", "")
        assert config.endpoint == asked.endpoint
        is_same = existing is not None and existing.endpoint == config.endpoint
        assert config.verified == (is_same and existing is not None and existing.verified)
        assert (config.verification_hash != "new") == is_same
    else:
        assert (config.endpoint, config.verification_hash, config.header_value) == ("", "", "")
        assert (config.max_messages, config.verified) == (1, True)
    assert (config.header_value != "") == (config.header_type == "autogen")
    usual = {"linear": 3000, "exponential": 1000, "slowstart": 0}[config.retry_policy]
    assert config.retry_period == (asked.retry_period if usual and asked.retry_period > 0 else usual)


@given(histories(), good, st.sampled_from(["", "dead"]), st.integers(0, 1000))
def test_dead_letters_are_never_kept(existing: PushConfig | None, asked: AskedPush, topic: str, attempts: int) -> None:
    asked = replace(asked, dead_letter_topic=topic, max_delivery_attempts=attempts if topic else 0)
    config = modify_push_config(existing, asked, numbered_secrets())
    assert config.dead_letter_topic == topic
    assert config.max_delivery_attempts == ((attempts or 5) if topic else 0)


@given(histories(), good)
def test_decoding_and_count_stay_when_nothing_is_said_of_them(existing: PushConfig | None, asked: AskedPush) -> None:
    """A10."""
    config = modify_push_config(existing, replace(asked, base64_decode=None, max_messages=0), numbered_secrets())
    assert config.base64_decode == (existing is not None and existing.base64_decode)
    if config.type == "http_endpoint":
        assert config.max_messages == (existing.max_messages if existing else 1)


@given(histories(), good)
def test_the_same_again_changes_nothing_but_a_header_asked_for(existing: PushConfig | None, asked: AskedPush) -> None:
    secret = numbered_secrets()
    once = modify_push_config(existing, asked, secret)
    twice = modify_push_config(once, asked, secret)

    assert replace(twice, header_value="") == replace(once, header_value="")
    assert (twice.header_value != once.header_value) == (asked.header_type == "autogen" and once.endpoint != "")


@given(asks, histories())
def test_creating_is_changing_a_pull_subscription(asked: AskedPush, existing: PushConfig | None) -> None:
    try:
        made = new_push_config(asked, numbered_secrets())
    except InvalidInput:
        with pytest.raises(InvalidInput):
            modify_push_config(existing, asked, numbered_secrets())
    else:
        assert made == modify_push_config(None, asked, numbered_secrets())
        modify_push_config(existing, asked, numbered_secrets())


PULL = None
AUTO = new_push_config(AskedPush(endpoint=URL), lambda: "old")
OFF = new_push_config(AskedPush(endpoint=URL, header_type="disabled"), lambda: "old")
OLD = replace(OFF, header_type="")
CHAT = new_push_config(AskedPush(mattermost_url="https://chat.example/hooks/x"), lambda: "old")


@pytest.mark.parametrize(
    ("asked", "existing", "result"),
    [
        *(("autogen", existing, ("autogen", "new")) for existing in (PULL, AUTO, OFF, OLD, CHAT)),
        *(("disabled", existing, ("disabled", "")) for existing in (PULL, AUTO, OFF, OLD, CHAT)),
        ("", PULL, ("autogen", "new")),
        ("", OLD, ("disabled", "")),
        ("", OFF, ("disabled", "")),
        ("", AUTO, ("autogen", "old")),
        ("", CHAT, ("autogen", "new")),  # A11
    ],
)
def test_the_header_follows_the_table(asked: str, existing: PushConfig | None, result: tuple[str, str]) -> None:
    config = modify_push_config(existing, AskedPush(endpoint=URL, header_type=asked), lambda: "new")
    assert (config.header_type, config.header_value) == result


@pytest.mark.parametrize(("asked", "at_creation", "at_change"), [
    (AskedPush(type="smtp", retry_policy="never"), BAD_TYPE, BAD_RETRY),
    (AskedPush(retry_policy="never"), BAD_TYPE, BAD_RETRY),
    (AskedPush(base64_decode=True), BAD_TYPE, BAD_TYPE),
    (AskedPush(endpoint="http://x", header_type="basic", retry_policy="never"), BAD_URL, BAD_RETRY),
    (AskedPush(endpoint=URL, header_type="basic", max_messages=-1), BAD_HEADER, BAD_HEADER),
    (AskedPush(endpoint=URL, max_messages=-1, retry_policy="never"), BAD_COUNT, BAD_RETRY),
    (AskedPush(endpoint=URL, max_messages=10_001), BAD_COUNT, BAD_COUNT),
    (AskedPush(type="mattermost", endpoint=URL, retry_policy="never"), NO_MATTERMOST_URL, BAD_RETRY),
    (AskedPush(endpoint="https://u:p@a/", header_type="basic"), URL_CREDENTIALS, URL_CREDENTIALS),
    (AskedPush(endpoint="http://u:p@[a"), URL_CREDENTIALS, URL_CREDENTIALS),
    (AskedPush(mattermost_url="https://u:p@chat.example/hooks/x"), MATTERMOST_CREDENTIALS, MATTERMOST_CREDENTIALS),
    (AskedPush(type="http_endpoint", mattermost_url="https://chat.example/hooks/x"), BAD_URL, BAD_URL),
    (AskedPush(endpoint=URL, max_messages=-1, max_delivery_attempts=-1), BAD_COUNT, BAD_COUNT),
    (AskedPush(endpoint=URL, retry_policy="never", max_delivery_attempts=-1), BAD_RETRY, BAD_RETRY),
    (AskedPush(type="smtp", max_delivery_attempts=-1), BAD_TYPE, BAD_TYPE),
    (AskedPush(type="mattermost", max_delivery_attempts=-1), NO_MATTERMOST_URL, NO_MATTERMOST_URL),
    (AskedPush(endpoint=URL, max_delivery_attempts=-1), BAD_ATTEMPTS, BAD_ATTEMPTS),
    (AskedPush(endpoint=URL, max_delivery_attempts=1), NO_DEAD_LETTER_TOPIC, NO_DEAD_LETTER_TOPIC),
    (AskedPush(endpoint=URL, dead_letter_topic="dead", max_delivery_attempts=1001), BAD_ATTEMPTS, BAD_ATTEMPTS),
    (AskedPush(endpoint=URL, max_delivery_attempts=-1, max_outstanding=-1), BAD_ATTEMPTS, BAD_ATTEMPTS),
    (AskedPush(endpoint=URL, max_outstanding=-1), BAD_OUTSTANDING, BAD_OUTSTANDING),
    (AskedPush(endpoint=URL, max_outstanding=1001), BAD_OUTSTANDING, BAD_OUTSTANDING),
    (AskedPush(endpoint=URL, max_outstanding=1), NOT_PARALLEL, NOT_PARALLEL),
])  # fmt: skip
def test_the_first_mistake_is_told(asked: AskedPush, at_creation: str, at_change: str) -> None:
    with pytest.raises(InvalidInput) as creating:
        new_push_config(asked, numbered_secrets())
    with pytest.raises(InvalidInput) as changing:
        modify_push_config(AUTO, asked, numbered_secrets())

    assert (creating.value.message, changing.value.message) == (at_creation, at_change)


GOOD = [
    "https://a", "HTTPS://A.example", "https://a:8443/x?y=z#f", "https://[2001:db8::1]:1/", "https://a.example./",
    f"https://{'a' * 63}/", f"https://{'a.' * 126}a/",
]  # fmt: skip
OTHERS = [
    "", "a", "/in", "http://a", "ftp://a", "https:", "https://", "https:///in", "https://:443", "https://a:x",
    "https://a:65536", "https://a:0", "https://[::1", "https://a b", "https://a\n", "\thttps://a", "https://a\\@b",
    "https://ü.example", "https://a\x7f", "https://?x", "//a", "https://u:p@a/", "https://u@a/", "https://@a/",
    "https://a..b/", "https://.a/", "https://a../", "https://./", f"https://{'a' * 64}.example",
    f"https://{'a.' * 127}a/",
]  # fmt: skip


@pytest.mark.parametrize("url", [*GOOD, *OTHERS])
def test_https_urls_with_a_host_are_good_and_others_are_not(url: str) -> None:
    assert is_https(url) is (url in GOOD)


@pytest.mark.parametrize(("url", "is_good"), [
    ("http://localhost:8080/in?a=b", True), ("http://127.0.0.1/", True), ("http://127.9.8.7:1/", True),
    ("http://[::1]:8080/", True), ("http://localhost.example/", False), ("http://receiver/in", False),
    ("http://10.0.0.1/", False), ("https://localhost/", False), ("http://u:p@localhost/", False),
    ("http://localhost@a.example/", False), ("http://0.0.0.0/", False), ("http://", False),
])  # fmt: skip
def test_http_goes_to_this_machine_only_and_only_where_that_is_permitted(url: str, is_good: bool) -> None:
    asked = AskedPush("http_endpoint", url, google=GoogleForm())

    assert is_local_http(url) is is_good
    if is_good:
        assert new_push_config(asked, numbered_secrets(), local_http=True).endpoint == url
        assert modify_push_config(None, asked, numbered_secrets(), local_http=True).endpoint == url
    for not_permitted in (lambda: new_push_config(asked, numbered_secrets()),
                          lambda: new_push_config(AskedPush(endpoint=url), numbered_secrets())):  # fmt: skip
        if not is_https(url):
            with pytest.raises(InvalidInput):
                not_permitted()


@given(st.text())
def test_any_text_is_a_url_or_not(text: str) -> None:
    if is_https("https://" + text):
        host, port = authority("https://" + text)
        assert host
        assert 0 < port < 65536


def test_secrets_are_not_in_what_is_printed() -> None:
    assert "s3cret" not in repr(new_push_config(AskedPush(endpoint=URL), lambda: "s3cret"))
    assert "s3cret" not in repr(AskedPush(mattermost_url="https://chat.example/hooks/s3cret"))
    assert new_push_config(AskedPush(endpoint=URL), lambda: "s3cret").without_secrets().verification_hash == ""


@pytest.mark.parametrize("outstanding", [0, 1, 1000])
def test_a_parallel_subscription_has_as_many_deliveries_as_asked_and_they_are_never_kept(outstanding: int) -> None:
    asked = AskedPush(endpoint=URL, max_outstanding=outstanding)
    made = new_push_config(asked, numbered_secrets(), parallel=True)

    assert made.max_outstanding == outstanding
    assert modify_push_config(made, AskedPush(endpoint=URL), numbered_secrets(), parallel=True).max_outstanding == 0
    with pytest.raises(InvalidInput, match=PARALLEL_DEAD_LETTERS):
        new_push_config(replace(asked, dead_letter_topic="dead"), numbered_secrets(), parallel=True)


GOOGLE = AskedPush(endpoint=URL, google=GoogleForm(service_account="a@P.iam.gserviceaccount.com"))


def test_googles_form_is_delivered_without_verifying_and_nothing_secret_is_made() -> None:
    made = new_push_config(GOOGLE, numbered_secrets(), parallel=True)
    assert (made.endpoint, made.verified, made.google) == (URL, True, GOOGLE.google)
    assert (made.header_value, made.verification_hash) == ("", "")


def test_another_form_of_the_same_endpoint_is_verified_anew_and_counts_as_a_change() -> None:
    made = modify_push_config(new_push_config(GOOGLE, numbered_secrets()), AskedPush(endpoint=URL), numbered_secrets())
    back = modify_push_config(made, GOOGLE, numbered_secrets())

    assert (made.google, made.verified, made.revision) == (None, False, 1)
    assert made.verification_hash
    assert (back.verified, back.revision) == (True, 2)


NO_ENDPOINT = "push endpoint given (endpoint={}). It must be a URL that begins with https."
UNREADABLE = "oidc_token given: its {} is too long or cannot be printed."
LONG = "https://a.example/" + "a" * 2048


@pytest.mark.parametrize(("endpoint", "form", "said"), [
    ("http://a.example", GoogleForm(), NO_ENDPOINT.format("http://a.example")),
    ("https://", GoogleForm(), NO_ENDPOINT.format("https://")),
    (LONG, GoogleForm(), NO_ENDPOINT.format(LONG[:2048])),
    ("https://u:p@a.example", GoogleForm(),
     "push endpoint given: it has a user and password in it. Leave them out, and give an oidc_token."),
    (URL, GoogleForm(audience="me"), "oidc_token given: it has no service_account_email."),
    (URL, GoogleForm(service_account="a" * 2049), UNREADABLE.format("service_account_email")),
    (URL, GoogleForm(service_account="a", audience="a\nb"), UNREADABLE.format("audience")),
])  # fmt: skip
def test_googles_form_has_rules_of_its_own(endpoint: str, form: GoogleForm, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        new_push_config(AskedPush(endpoint=endpoint, google=form), numbered_secrets())
    assert refused.value.message == f"Invalid {said}"


def test_a_version_is_one_of_three_and_the_only_attribute() -> None:
    good = ["v1", "v1beta1", "v1beta2"]
    assert [google_version({GOOGLE_VERSION: each}) for each in good] == good
    assert google_version({}) == ""
    bad = ({GOOGLE_VERSION: "v2"}, {GOOGLE_VERSION: ""}, {"other": "v1"}, {GOOGLE_VERSION: "v1", "other": ""})
    for other in bad:
        with pytest.raises(InvalidInput) as refused:
            google_version(other)
        assert refused.value.message == (
            "Invalid push endpoint version given in the attributes: x-goog-version is the only one,"
            " and v1, v1beta1 or v1beta2 its value."
        )


@pytest.mark.parametrize(("url", "shown"), [
    ("https://user:s3cret@a.example/x?y=@#z", "https://a.example/x?y=@#z"),
    ("https://user@a.example", "https://a.example"), ("https://:s3cret@a.example", "https://a.example"),
    ("HTTPS://user:s3@cret@a.example", "HTTPS://a.example"), ("user:s3cret@a.example/x", "user:a.example/x"),
    ("//user:s3cret@a.example", "//a.example"), ("https:user:s3cret@a.example", "https:a.example"),
    ("https:\\\\user:s3cret@a.example", "https:\\\\a.example"), ("http://user:s3cret@[a", "http://[a"),
    (" https://user:s3cret@a.example", " https://a.example"),
])  # fmt: skip
def test_credentials_are_found_and_not_shown(url: str, shown: str) -> None:
    assert has_credentials(url)
    assert not is_http_url(url)
    assert without_credentials(url) == shown


@pytest.mark.parametrize(("url", "is_http"), [
    *((each, True) for each in ("https://a.example/@x", "http://[::1]:80?a=u:p@b", "https://a.example#u@b")),
    *((each, False) for each in ("", "a.example", "ftp://a.example", "https://", "http://[a", "mailto:")),
])  # fmt: skip
def test_a_url_without_credentials_is_shown_as_it_is(url: str, is_http: bool) -> None:
    assert not has_credentials(url)
    assert is_http_url(url) is is_http
    assert without_credentials(url) == url


spans = st.integers(0, MAX_BACKOFF).map(Milliseconds)
good_options = st.builds(
    ParallelOptions, st.none() | st.tuples(spans, spans).map(lambda pair: RetryPolicy(*sorted(pair))),
    st.none() | st.builds(DeadLetterPolicy, st.sampled_from(["D", "projects/P/topics/D"]), st.integers(5, 100)),
    st.sampled_from(["", "attributes:a", 'attributes."\u00e4" != "\\""']), st.booleans(), st.booleans(), st.booleans(),
    st.none() | st.integers(MIN_TTL, 10**15), st.none() | st.integers(MIN_RETENTION, MAX_RETENTION), st.booleans(),
)  # fmt: skip
BAD = [ParallelOptions(RetryPolicy(Milliseconds(-1))),
       ParallelOptions(RetryPolicy(maximum_backoff=Milliseconds(MAX_BACKOFF + 1))),
       ParallelOptions(RetryPolicy(Milliseconds(2), Milliseconds(1))),
       ParallelOptions(dead_letter_policy=DeadLetterPolicy("D", 4)),
       ParallelOptions(dead_letter_policy=DeadLetterPolicy("D", 101)),
       ParallelOptions(dead_letter_policy=DeadLetterPolicy("")), ParallelOptions(filter="a"),
       ParallelOptions(expiration_ttl=Milliseconds(MIN_TTL - 1)),
       ParallelOptions(message_retention=Milliseconds(MIN_RETENTION - 1)),
       ParallelOptions(message_retention=Milliseconds(MAX_RETENTION + 1))]  # fmt: skip


@given(good_options)
def test_what_keeps_the_limits_is_good_and_is_stored_as_it_is(options: ParallelOptions) -> None:
    check(options)
    column, dialect = subscriptions.c.parallel.type, DefaultDialect()
    assert column.process_result_value(column.process_bind_param(options, dialect), dialect) == options


@given(good_options, st.sampled_from(BAD))
def test_one_bad_option_is_enough(options: ParallelOptions, bad: ParallelOptions) -> None:
    plain = ParallelOptions()
    wrong = {n: getattr(bad, n) for n in ParallelOptions.__slots__ if getattr(bad, n) != getattr(plain, n)}

    with pytest.raises(InvalidInput):
        check(replace(options, **wrong))


@given(st.integers(0, 10**15 - 1))
def test_a_span_is_read_as_it_is_written(span: int) -> None:
    assert seconds_span(seconds_text(Milliseconds(span))) == span


@given(st.text(max_size=20) | st.from_regex(r"-?[0-9]{0,14}(\.[0-9]{0,11})?s?", fullmatch=True))
def test_any_text_is_a_span_or_is_none(text: str) -> None:
    try:
        span = seconds_span(text)
    except ValueError as error:
        assert repr(text) in str(error)
    else:
        assert 0 <= span <= 10**15
