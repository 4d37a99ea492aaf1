from pathlib import Path

import pytest

from bench import handshake
from bench.certificates import ECDSA, RSA, make
from bench.connection import request
from bench.handshake_costs import Ends


@pytest.mark.parametrize("resumed", [False, True])
def test_a_handshake_in_memory_costs_both_sides_something(tmp_path: Path, resumed: bool) -> None:
    cost = Ends(make(tmp_path, ECDSA), tickets=1).cost(3, resumed=resumed)

    assert cost.server_us > 0
    assert cost.client_us > 0
    assert cost.server_bytes > 100


def test_a_longer_chain_and_larger_keys_are_more_to_send(tmp_path: Path) -> None:
    made = [make(tmp_path / f"{kind}-{shown}", kind, shown) for kind, shown in ((ECDSA, 1), (ECDSA, 2), (RSA, 1))]
    short, long, large = (Ends(files, tickets=0).cost(1).server_bytes for files in made)

    assert short < long
    assert short < large


def test_a_bare_server_shakes_hands_and_answers_what_is_asked(tmp_path: Path) -> None:
    files = make(tmp_path / "certificates", ECDSA)
    asked = request("GET", "/", "token")

    with handshake.server(files.chain.parent) as bare:
        stages = handshake.stages(bare.url, files.ca, 2, asked)
        calls = [handshake.calls_per_second(bare.url, files.ca, 0.05, each) for each in (None, asked)]

    assert min(*stages, *calls) > 0
