"""Subjects: what is remembered of certificates, be they believed or not."""

from ams.authn import subjects
from ams.authn.subjects import Subjects
from tests.support.authorities import Authority


def test_a_subject_is_read_once_and_a_long_one_takes_no_memory() -> None:
    """Whoever nobody trusts can show certificates by the thousand, each with names of 100 kB."""
    known, authority = Subjects(), Authority.make("Anybody")
    usual, long = authority.signs("Jane"), authority.signs([("OU", "x" * 60)] * 40)

    assert known.of(usual.certificate)[1] is known.of(usual.certificate)[1]
    assert len(known.of(long.certificate)[1].name) > subjects.LONGEST
    assert known.of(long.certificate)[1] is not known.of(long.certificate)[1]
