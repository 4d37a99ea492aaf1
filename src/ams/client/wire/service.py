"""Calls about the service itself (contract 14.5 and 14.6), and our own doctor."""

from ams.client.wire.call import Call, Json, reader
from ams.client.wire.reports import ServiceDiagnosis

_diagnosis = reader(ServiceDiagnosis)
_object = reader(Json)


def get_status(*, details: bool = False) -> Call[Json]:
    """Ask how the service is; `details` needs a service_admin's or admin_viewer's token."""
    return Call("GET", "/v1/status", _object, query={"details": "true"} if details else {})


def get_version() -> Call[Json]:
    """Ask what the service runs on; the release is shown to service_admin and admin_viewer only."""
    return Call("GET", "/v1/version", _object)


def diagnose_service() -> Call[ServiceDiagnosis]:
    """Ask what is wrong with the service; answered to service_admin and admin_viewer only."""
    return Call("GET", "/v1/doctor", _diagnosis)
