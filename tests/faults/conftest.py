"""Where no disk can be mounted, full disks are tested through the file seam only (`test_full_seam.py`)."""

from tests.faults.small_disk import can_mount

collect_ignore = [] if can_mount() else ["test_full_disk.py"]
