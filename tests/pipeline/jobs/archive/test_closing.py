from datetime import date

from ams.pipeline.jobs.archive.closing import passes, worth_merging
from ams.pipeline.tables import Folder

MIB = 2**20


def folder(day: str, name: str, files: int = 1, size: int = MIB) -> Folder:
    return Folder(f"project=p/topic=t/date={day}/{name}", batch=0, rows=1, files=files, bytes=size)


def test_closed_days_of_many_small_files_are_worth_merging() -> None:
    folders = [
        folder("2024-03-04", "batch-1"),
        folder("2024-03-04", "batch-2"),
        folder("2024-03-05", "batch-2"),
        folder("2024-03-06", "batch-3"),
        folder("2024-03-06", "batch-4"),
    ]

    found = worth_merging(folders, date(2024, 3, 6), 256 * MIB)

    assert [each[0].values["date"] for each in found] == ["2024-03-04"]


def test_what_is_merged_is_let_be_until_more_comes() -> None:
    merged = folder("2024-03-04", "merged-1", files=4, size=1000 * MIB)
    late = folder("2024-03-04", "batch-9")

    assert worth_merging([merged], date(2024, 3, 6), 256 * MIB) == []
    assert worth_merging([merged, late], date(2024, 3, 6), 256 * MIB) == [[merged, late]]


def test_a_pass_is_neither_too_large_nor_too_long() -> None:
    large = [[folder("2024-03-04", f"batch-{number}", size=600 * MIB)] for number in range(3)]
    small = [[folder("2024-03-04", f"batch-{number}")] for number in range(450)]

    assert [len(each) for each in passes(large)] == [1, 1, 1]
    assert [len(each) for each in passes(small)] == [200, 200, 50]
    assert list(passes([])) == []
