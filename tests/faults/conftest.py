"""Where no disk can be mounted, full disks are tested through the file seam only (`test_full_seam.py`)."""

from tests.faults.small_disk import can_mount

collect_ignore = [] if can_mount() else ["test_full_disk.py"]


def pytest_report_header() -> list[str]:
    """Say so."""
    return ["full disks: through the file seam only, as no tmpfs can be mounted here"] if collect_ignore else []
