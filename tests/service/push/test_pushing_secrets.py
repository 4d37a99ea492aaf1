"""Secrets of signatures, as far as no registry is needed."""

from ams.service.push.pushing import RotatedSecret


def test_a_new_secret_is_not_in_what_is_printed() -> None:
    assert "whsec_x" not in repr(RotatedSecret("whsec_x", None))
