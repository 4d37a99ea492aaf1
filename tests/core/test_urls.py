"""URLs in settings and requests: which are good, and what is shown of one with credentials."""

import pytest

from ams.core.urls import has_credentials, is_http_url, without_credentials


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:s3cret@a.example/x?y=@#z", "https://a.example/x?y=@#z"),
        ("https://user@a.example", "https://a.example"),
        ("https://:s3cret@a.example", "https://a.example"),
        ("HTTPS://user:s3@cret@a.example", "HTTPS://a.example"),
        ("user:s3cret@a.example/x", "user:a.example/x"),
        ("//user:s3cret@a.example", "//a.example"),
        ("https:user:s3cret@a.example", "https:a.example"),
        ("https:\\\\user:s3cret@a.example", "https:\\\\a.example"),
        ("http://user:s3cret@[a", "http://[a"),
        (" https://user:s3cret@a.example", " https://a.example"),
    ],
)
def test_credentials_are_found_and_not_shown(url: str, shown: str) -> None:
    assert has_credentials(url)
    assert not is_http_url(url)
    assert without_credentials(url) == shown


@pytest.mark.parametrize("url", ["https://a.example/@x", "http://[::1]:80?a=u:p@b", "https://a.example#u@b"])
def test_an_at_sign_after_the_host_is_none(url: str) -> None:
    assert not has_credentials(url)
    assert is_http_url(url)
    assert without_credentials(url) == url


@pytest.mark.parametrize("url", ["", "a.example", "ftp://a.example", "https://", "http://[a", "mailto:"])
def test_others_are_no_http_urls(url: str) -> None:
    assert not is_http_url(url)
    assert without_credentials(url) == url
