"""`ams push` as it begins."""

import sys

import pytest

from ams.app.push_server.settings import PushSettings
from ams.cli.serve import push
from ams.core.errors import Unusable


def test_what_is_missing_is_told_by_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the name of a package that nobody knows: that of protobuf is `google`."""
    monkeypatch.delitem(sys.modules, "ams.app.push_server.program", raising=False)
    monkeypatch.setitem(sys.modules, "ams.app.push_server.service", None)

    with pytest.raises(Unusable, match=r"^ams push needs libraries that are missing: install argo-messaging\[push\]$"):
        push(PushSettings())
