"""The lines of the contracts that this service must keep, each named by at least one row.

A plain number is a section of the HTTP contract (docs/contract/api.md). `17.x` are defects of the reference that must
not be copied; `clients` are the rules of docs/contract/clients.md; `ours` is in no contract.

Other tests keep these, because no single request shows them: 17.1 M4 and M8 and 17.4 O9 (the log,
`tests/service/push/test_configurations.py`), 17.4 O13 (`tests/core/test_settings.py`), clients R14 (TLS), 17.4 O11
(caches).
"""

SECTIONS = ["1", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6", *(f"1.5 {step}" for step in range(2, 8)), "2"]
SECTIONS += ["3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "4", "5.1", "5.2", "5.3", "5.4", "6", "7", "7.1", "8"]
SECTIONS += ["9.1", "9.2", "9.3", "10.1", "10.2", "10.3", "10.4", "11.1", "11.2", "11.3", "11.4", "11.5"]
SECTIONS += ["12.1", "12.2", *(f"13.{part}" for part in range(1, 7)), *(f"14.{part}" for part in range(1, 7))]
SECTIONS += ["15", "15.1", "15.2", "15.3", "16", *(f"19.{part}" for part in range(1, 7))]

DEFECTS = [f"17.1 M{number}" for number in (1, 2, 3, 5, 6, 7, 9, 10, 11, 12)]
DEFECTS += [f"17.2 A{number}" for number in range(1, 15)]
DEFECTS += [f"17.3 U{number}" for number in range(1, 15)]
DEFECTS += [f"17.4 O{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14)]

CLIENTS = [f"clients R{number}" for number in range(1, 14)]
CLIENTS += [f"clients A{number}" for number in range(1, 25)]

_OURS = [
    "key", "lists", "seek", "offsets", "read", "retention", "doctor", "attributes", "dryRun", "retry", "secret",
    "protobuf",
]  # fmt: skip
OURS = [f"ours {what}" for what in (*_OURS, "dead letters")]
"""This service's additions to the contract, each described in docs/reference."""

LINES = [*SECTIONS, *DEFECTS, *CLIENTS, *OURS]
