"""What the database needs to know of the registry's tables."""

from ams.storage.database.schema import Schema, outcomes_table
from ams.storage.registry.tables import METADATA, TAKEN

OTHERS = "authn_"
"""What the names of the certificate service's tables begin with, which may be in the same database."""

REGISTRY = Schema(
    what="registry",
    tables=METADATA,
    outcomes=outcomes_table("outcomes"),
    taken=TAKEN,
    absent="project doesn't exist",
    migrations="ams.storage.registry:migrations",
    version="alembic_version",
    head="0006",
    channel="ams_registry",
    serving=0x616D735F73657276,  # "ams_serv" in ASCII
    owns=lambda table: not table.startswith(OTHERS),
)
