"""Calls about projects and their members (contract 7), and the service: status, metrics, usage (14), audit log."""

from collections.abc import Mapping, Sequence

from ams.client.wire.call import (
    Call,
    Json,
    given,
    json_body,
    members_path,
    nothing,
    page,
    projects_path,
    reader,
    subscriptions_path,
    topics_path,
)
from ams.wire.projects import NewProject, NewRetention, Project, ProjectChange, ProjectQuotas, Projects, QuotaChanges
from ams.wire.service import Lines, Metrics, ServiceDiagnosis, UsageReport, VaMetrics
from ams.wire.users import MemberBody, MemberRoles, MembershipBody, User, Users


def list_projects() -> Call[Projects]:
    """Ask for all projects."""
    return Call("GET", projects_path(), reader(Projects))


def get_project(project: str) -> Call[Project]:
    """Ask for one project."""
    return Call("GET", projects_path(project), reader(Project))


def create_project(project: str, description: str = "") -> Call[Project]:
    """Make a project; `AlreadyExists` when the name is taken."""
    return Call("POST", projects_path(project), reader(Project), json_body(NewProject(description)))


def update_project(
    project: str, *, name: str = "", description: str = "", strict_data: bool | None = None
) -> Call[Project]:
    """Rename or describe a project, or say whether it refuses data that is not base64; what is empty or None stays."""
    body = ProjectChange(name=name or None, description=description or None, strict_data=strict_data)
    return Call("PUT", projects_path(project), reader(Project), json_body(body))


def modify_project_retention(project: str, seconds: int) -> Call[Project]:
    """Say how long messages are kept in topics without a time of their own, at most a year; 0: as the service says."""
    return Call("POST", projects_path(project, "modifyRetention"), reader(Project), json_body(NewRetention(seconds)))


def get_project_quotas(project: str) -> Call[ProjectQuotas]:
    """Ask for the quotas of a project, and what it uses of them."""
    return Call("GET", projects_path(project, "quotas"), reader(ProjectQuotas))


def modify_project_quotas(project: str, quotas: Mapping[str, int | None]) -> Call[ProjectQuotas]:
    """Change quotas of a project; 0: no limit, None: the default again. What is not named stays."""
    body = json_body(QuotaChanges(dict(quotas)))
    return Call("POST", projects_path(project, "modifyQuotas"), reader(ProjectQuotas), body)


def delete_project(project: str) -> Call[None]:
    """Remove a project with all its topics, subscriptions and messages."""
    return Call("DELETE", projects_path(project), nothing)


def list_members(project: str, *, details: bool = False, page_size: int = 0, page_token: str = "") -> Call[Users]:
    """Ask for the users of a project; `details` adds what they may do where."""
    query = page(page_size, page_token) | ({"details": "true"} if details else {})
    return Call("GET", members_path(project), reader(Users), query=query)


def get_member(project: str, user: str) -> Call[User]:
    """Ask for one user of a project."""
    return Call("GET", members_path(project, user), reader(User))


def create_member(project: str, user: str, roles: Sequence[str] = (), *, email: str | None = None) -> Call[User]:
    """Make a new user who is a member of the project; the answer holds the token."""
    return Call("POST", members_path(project, user), reader(User), _member_body(project, roles, email))


def update_member(project: str, user: str, roles: Sequence[str]) -> Call[User]:
    """Replace the roles a member has in the project."""
    return Call("PUT", members_path(project, user), reader(User), _member_body(project, roles))


def add_member(project: str, user: str, roles: Sequence[str] = ()) -> Call[User]:
    """Make an existing user a member of the project."""
    return Call("POST", members_path(project, user, "add"), reader(User), json_body(MemberRoles(list(roles))))


def refresh_member_token(project: str, user: str) -> Call[User]:
    """Give a member a new token; the old one is dead at once. A project_admin may for one who is nowhere else."""
    return Call("POST", members_path(project, user, "refreshToken"), reader(User))


def remove_member(project: str, user: str) -> Call[None]:
    """End a user's membership; the user stays."""
    return Call("POST", members_path(project, user, "remove"), nothing)


def _member_body(project: str, roles: Sequence[str], email: str | None = None) -> bytes:
    return json_body(MemberBody(projects=[MembershipBody(project=project, roles=list(roles))], email=email))


def get_status(*, details: bool = False) -> Call[Json]:
    """Ask how the service is; `details` needs a service_admin's or admin_viewer's token."""
    return Call("GET", "/v1/status", reader(Json), query={"details": "true"} if details else {})


def get_console() -> Call[Json]:
    """Ask how the console of the service is set up; `NotFound` where it has none."""
    return Call("GET", "/console/config.json", reader(Json))


def get_version() -> Call[Json]:
    """Ask what the service runs on; the release is shown to service_admin and admin_viewer only."""
    return Call("GET", "/v1/version", reader(Json))


def diagnose_service() -> Call[ServiceDiagnosis]:
    """Ask what is wrong with the service; answered to service_admin and admin_viewer only."""
    return Call("GET", "/v1/doctor", reader(ServiceDiagnosis))


def get_service_metrics() -> Call[Metrics]:
    """Ask what the service takes of its machine."""
    return Call("GET", "/v1/metrics", reader(Metrics))


def get_project_metrics(project: str) -> Call[Metrics]:
    """Ask for the metrics of a project."""
    return Call("GET", projects_path(project, "metrics"), reader(Metrics))


def get_topic_metrics(project: str, topic: str) -> Call[Metrics]:
    """Ask for the metrics of a topic."""
    return Call("GET", topics_path(project, topic, "metrics"), reader(Metrics))


def get_subscription_metrics(project: str, subscription: str) -> Call[Metrics]:
    """Ask for the metrics of a subscription."""
    return Call("GET", subscriptions_path(project, subscription, "metrics"), reader(Metrics))


def get_va_metrics(*, start: str = "", end: str = "", projects: Sequence[str] = ()) -> Call[VaMetrics]:
    """Ask what was published and created from day `start` to `end` (`YYYY-MM-DD`, both included) in projects.

    What is left out is 1970-01-01, today, all projects.
    """
    query = given(start_date=start, end_date=end, projects=",".join(projects))
    return Call("GET", "/v1/metrics/va_metrics", reader(VaMetrics), query=query)


def get_usage_report(*, start: str = "", end: str = "", projects: Sequence[str] = ()) -> Call[UsageReport]:
    """Ask for the same of the projects the caller administers."""
    query = given(start_date=start, end_date=end, projects=",".join(projects))
    return Call("GET", "/v1/users/usageReport", reader(UsageReport), query=query)


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
    query = given(since=since, until=until, actor=actor, action=action, address=address, result=result)
    return Call("GET", "/v1/audit", reader(Lines), query=query | page(page_size, page_token))
