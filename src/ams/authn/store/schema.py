"""What the database needs to know of the certificate service's tables."""

from ams.authn.store.tables import METADATA, TAKEN, VERSION
from ams.authn.values import HOST_GONE
from ams.storage.database.schema import Schema, outcomes_table

AUTHN = Schema(
    what="certificate service",
    tables=METADATA,
    outcomes=outcomes_table("authn_outcomes"),
    taken=TAKEN,
    absent=HOST_GONE,
    migrations="ams.authn.store:migrations",
    version=VERSION,
    head="0001",
    channel="ams_authn",
    serving=0x616D735F61757468,  # "ams_auth" in ASCII
    owns=lambda table: table.startswith("authn_"),
)
"""They may be in the same database of PostgreSQL as the registry's, whoever of the two comes first."""
