from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.processes import Process
from tests.support.marks import MissingMark
from tests.support.parts import kafka_servers, new_database


@pytest.mark.embedded("on the cluster's engines every test may use the parts")
@pytest.mark.parametrize(
    "use",
    [kafka_servers, new_database, *(lambda name=name: Process(name, ["true"], Path("log")).start()
                                    for name in ("broker 1", "postgres 1", "haproxy"))],
)  # fmt: skip
def test_a_test_without_its_mark_may_not_use_a_part(use: Callable[[], object]) -> None:
    with pytest.raises(MissingMark, match=r"lacks the mark: @pytest\.mark\."):
        use()
