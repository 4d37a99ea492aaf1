"""Calls about projects and their members (contract 7), and the service: status, metrics, usage (14), audit log."""

from collections.abc import Mapping, Sequence
from functools import partial
from types import NoneType

from ams.client.wire.call import Call, Json, call_of, non_empty, page, reader
from ams.wire.projects import NewProject, NewRetention, Project, ProjectChange, ProjectQuotas, Projects, QuotaChanges
from ams.wire.service import Lines, Metrics, ServiceDiagnosis, UsageReport, VaMetrics
from ams.wire.users import MemberBody, MemberRoles, MembershipBody, User, Users

list_projects = partial(call_of, "projects:list", Projects)
"""Ask for all projects, oldest first."""
get_project = partial(call_of, "projects:show", Project)
get_project_quotas = partial(call_of, "projects:quotas", ProjectQuotas)
"""Ask for the quotas of a project, and what it uses of them."""
delete_project = partial(call_of, "projects:delete", NoneType)
"""Remove a project with all its topics, subscriptions and messages."""
get_member = partial(call_of, "projects:showUser", User)
refresh_member_token = partial(call_of, "projects:refreshUserToken", User)
"""Replace a member's token; the old one is invalid at once. A project_admin may if it is in no other project."""
remove_member = partial(call_of, "projects:removeUser", NoneType)
"""End a user's membership; the user stays."""
get_version = partial(call_of, "version:list", Json)
"""Ask what the service runs on; the release is shown to service_admin and admin_viewer only."""
diagnose_service = partial(call_of, "service:doctor", ServiceDiagnosis)
"""Ask what is wrong with the service; answered to service_admin and admin_viewer only."""
get_service_metrics = partial(call_of, "ams:metrics", Metrics)
"""Ask what the service takes of its machine."""
get_project_metrics = partial(call_of, "projects:metrics", Metrics)
get_topic_metrics = partial(call_of, "topics:metrics", Metrics)
get_subscription_metrics = partial(call_of, "subscriptions:metrics", Metrics)


def create_project(project: str, description: str = "") -> Call[Project]:
    """Make a project; `AlreadyExists` when the name is taken."""
    return call_of("projects:create", Project, project, body=NewProject(description))


def update_project(
    project: str, *, name: str = "", description: str = "", strict_data: bool | None = None
) -> Call[Project]:
    """Change a project's name, description or strict_data (refuse data that is not base64); empty or None stays."""
    body = ProjectChange(name=name or None, description=description or None, strict_data=strict_data)
    return call_of("projects:update", Project, project, body=body)


def modify_project_retention(project: str, seconds: int) -> Call[Project]:
    """Set the retention of topics without their own, at most a year; 0: the service's."""
    return call_of("projects:modifyRetention", Project, project, body=NewRetention(seconds))


def modify_project_quotas(project: str, quotas: Mapping[str, int | None]) -> Call[ProjectQuotas]:
    """Change quotas of a project; 0: no limit, None: the default. Other quotas stay."""
    return call_of("projects:modifyQuotas", ProjectQuotas, project, body=QuotaChanges(dict(quotas)))


def list_members(project: str, *, details: bool = False, page_size: int = 0, page_token: str = "") -> Call[Users]:
    """Ask for the users of a project; `details` adds what they may do where."""
    query = page(page_size, page_token) | ({"details": "true"} if details else {})
    return call_of("projects:listUsers", Users, project, query=query)


def create_member(project: str, user: str, roles: Sequence[str] = (), *, email: str | None = None) -> Call[User]:
    """Make a new user who is a member of the project; the answer holds the token."""
    return call_of("projects:createUser", User, project, user, body=_member_body(project, roles, email))


def update_member(project: str, user: str, roles: Sequence[str]) -> Call[User]:
    """Replace the roles a member has in the project."""
    return call_of("projects:updateUser", User, project, user, body=_member_body(project, roles))


def add_member(project: str, user: str, roles: Sequence[str] = ()) -> Call[User]:
    """Make an existing user a member of the project."""
    return call_of("projects:addUser", User, project, user, body=MemberRoles(list(roles)))


def _member_body(project: str, roles: Sequence[str], email: str | None = None) -> MemberBody:
    return MemberBody(projects=[MembershipBody(project=project, roles=list(roles))], email=email)


def get_status(*, details: bool = False) -> Call[Json]:
    """Ask how the service is; `details` needs a service_admin's or admin_viewer's token."""
    return call_of("ams:healthStatus", Json, query={"details": "true"} if details else {})


def get_console() -> Call[Json]:
    """Ask how the console of the service is set up; `NotFound` where it has none."""
    return Call("GET", "/console/config.json", reader(Json))


def get_va_metrics(*, start: str = "", end: str = "", projects: Sequence[str] = ()) -> Call[VaMetrics]:
    """Ask what was published and created from day `start` to `end` (`YYYY-MM-DD`, both included) in projects.

    What is left out is 1970-01-01, today, all projects.
    """
    query = non_empty(start_date=start, end_date=end, projects=",".join(projects))
    return call_of("ams:vaMetrics", VaMetrics, query=query)


def get_usage_report(*, start: str = "", end: str = "", projects: Sequence[str] = ()) -> Call[UsageReport]:
    """Ask for the same of the projects the caller administers."""
    query = non_empty(start_date=start, end_date=end, projects=",".join(projects))
    return call_of("users:usageReport", UsageReport, query=query)


def list_events(
    *,
    since: str = "",
    until: str = "",
    actor: str = "",
    action: str = "",
    address: str = "",
    result: str = "",
    page_size: int = 0,
    page_token: str = "",
) -> Call[Lines]:
    """Ask for events, newest first: those that have all that is given; `action` is what theirs begins with.

    A page has at most 1000 of them, and 100 without a size.
    """
    query = non_empty(since=since, until=until, actor=actor, action=action, address=address, result=result)
    return call_of("audit:list", Lines, query=query | page(page_size, page_token))
