"""Sections 14.5 and 14.6: status and version."""

from ams import __version__
from tests.contract.rows import *

TEXT = Like(".+")
STATUS = Answer({"status": "ok", "push_functionality": "disabled"})

ROWS = [
    Row("14.5", "status with push disabled", get("/status", by="nobody"), STATUS),
    Row("14.5, clients A24", "status with a token", get("/status"), STATUS),
    Row("14.5", "details for a service admin", get("/status?details=true"), STATUS),
    Row("14.5", "details for an admin viewer", get("/status?details=true", by="av"), STATUS,
        (user("av", "admin_viewer"),)),
    Row("14.5, 17.4 O6", "details for nobody", get("/status?details=true", by="nobody"), UNAUTHORIZED),
    Row("14.5, 17.4 O6", "details for a stranger", get("/status?details=true", by="stranger"), UNAUTHORIZED),
    Row("14.5, 17.4 O6", "details for a user without the role", get("/status?details=true", by="adm"), FORBIDDEN,
        (member("adm", "project_admin"),)),
    Row("14.5", "only the exact text asks for details", get("/status?details=True", by="nobody"), STATUS),
    Row("14.6", "version for everybody", get("/version", by="nobody"), Answer(Has(build_time=DATE, golang=TEXT,
        compiler=TEXT, os=TEXT, architecture=TEXT, release=None, hostname=None))),
    Row("14.6, clients A24", "an invalid token is no error", get("/version", by="stranger"), Answer(Has(release=None))),
    Row("14.6", "the release for a service admin", get("/version"), Answer(Has(release=__version__))),
    Row("14.6", "the release for an admin viewer", get("/version", by="av"), Answer(Has(release=__version__)),
        (user("av", "admin_viewer"),)),
    Row("14.6", "not for others", get("/version", by="adm"), Answer(Has(release=None)),
        (member("adm", "project_admin"),)),
    Row("14.6", "the name behind a proxy", get("/version", by="nobody"), Answer(Has(hostname="ams.example")),
        served="behind a proxy"),
]  # fmt: skip
