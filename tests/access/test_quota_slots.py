"""Slots of what lasts: as many as a project's quota says, given back also after an error."""

import contextlib

import pytest

from ams.access.quota_slots import QuotaSlots
from ams.core.errors import QuotaExceeded
from ams.core.names import ProjectId, ProjectName
from ams.core.quotas import STREAMS, Limits, Quotas
from ams.storage.registry.records import Project


def project(name: str, quotas: Limits) -> Project:
    return Project(ProjectId(name), ProjectName(name), "", 0, 0, None, None, quotas)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("default", "own", "most"), [(0, {}, 9), (2, {}, 2), (2, {STREAMS: 3}, 3), (2, {STREAMS: 0}, 9)]
)
def test_a_project_has_as_many_as_its_quota_says_and_others_do_not_notice(default: int, own: Limits, most: int) -> None:
    slots, here, other = QuotaSlots(Quotas({STREAMS: default}), STREAMS), project("P", own), project("Q", {})
    with contextlib.ExitStack() as stack:
        for _ in range(most):
            stack.enter_context(slots.taken(here))
        assert slots.used(here.id) == most
        with slots.taken(other):
            assert slots.used(other.id) == 1
        if most < 9:
            with pytest.raises(QuotaExceeded, match=f"Quota streams of the project is exceeded: its limit is {most}"):
                stack.enter_context(slots.taken(here))
    with contextlib.suppress(KeyError), slots.taken(here):
        raise KeyError
    assert (slots.used(here.id), slots.used(other.id)) == (0, 0)
