from bench.executors import MIB, Memory


def test_growth_is_what_the_last_third_takes_beyond_the_second() -> None:
    memory = Memory([(float(second), 0 if second < 3 else 100 * MIB, second * MIB) for second in range(33)])

    assert memory.growth == 132 / 122
    assert memory.figures() == {"java_mib": 100, "python_mib": 32}


def test_without_executors_nothing_grows() -> None:
    assert Memory([(1.0, 0, 0)]).growth == 0
