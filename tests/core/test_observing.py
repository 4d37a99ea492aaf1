import socket
from pathlib import Path

import pytest

from ams.core.errors import Unusable
from ams.core.observing import Stderr, Syslog, TeeStream


def test_a_line_goes_to_the_syslog_as_this_program_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    address = str(tmp_path / "log")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address)
        with Syslog(address) as syslog:
            syslog.write("10% of it\n")
            both = TeeStream(Stderr(), syslog)
            both.write("a line\n")
            both.flush()
        said = [listener.recv(1000) for _ in range(2)]

    assert said == [b"<30>ams: 10% of it\x00", b"<30>ams: a line\x00"]
    assert capsys.readouterr().err == "a line\n"


def test_without_a_syslog_the_start_stops_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="log_facilities: no syslog at") as stopped:
        Syslog(str(tmp_path / "none"))

    assert "\n" not in stopped.value.message
