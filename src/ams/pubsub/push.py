"""Push configurations, as requests ask for them and answers show them.

The messages of one that is made here go out in Google's form. One that AMS's API made is shown by its endpoint alone.
"""

import re

from ams.access.admission import Caller
from ams.access.permissions import SERVICE_ADMIN
from ams.core.errors import InvalidInput, NotAllowed
from ams.core.names import ProjectName
from ams.core.push_config import GOOGLE_VERSION, HTTP_ENDPOINT, AskedPush, GoogleForm, PushConfig, google_version
from ams.pubsub.protos import Message

EXACTLY_ONCE = "Exactly-once delivery is for pull subscriptions only: enable_exactly_once_delivery and push_config."
ORDERED = "An ordered subscription of AMS gets its push configuration from the AMS API."
_ACCOUNT = re.compile(r"[^@\s]+@([^@\s.]+)\.iam\.gserviceaccount\.com")


def asked_push(config: Message, *, exactly_once: bool) -> AskedPush | None:
    """Return what a request says of push, None for a pull subscription; raise `InvalidInput`."""
    if not config.push_endpoint:
        if config.ListFields():
            raise InvalidInput("Invalid push endpoint given (endpoint=). A push_config that is not empty needs one.")
        return None
    if exactly_once:
        raise InvalidInput(EXACTLY_ONCE)
    token = config.oidc_token
    if config.HasField("oidc_token") and not token.service_account_email:
        raise InvalidInput("Invalid oidc_token given: it has no service_account_email.")
    form = GoogleForm(
        is_wrapped=not config.HasField("no_wrapper"),
        write_metadata=config.no_wrapper.write_metadata,
        service_account=token.service_account_email,
        audience=token.audience,
        version=google_version(config.attributes),
    )
    return AskedPush(HTTP_ENDPOINT, config.push_endpoint, google=form)


def require_account(caller: Caller, project: ProjectName, asked: AskedPush, before: PushConfig | None = None) -> None:
    """Raise `NotAllowed` unless the caller may have deliveries call themselves so.

    Accounts of the project are everybody's who may configure push there; others only administrators of the service
    may name, or a receiver could take deliveries of one project for another's. One that is there already may stay.
    """
    account = asked.google.service_account if asked.google else ""
    if not account or SERVICE_ADMIN in caller.roles:
        return
    if before is not None and before.google is not None and before.google.service_account == account:
        return
    found = _ACCOUNT.fullmatch(account)
    if found is None or found[1] != project:
        raise NotAllowed(f"The service account must be one of the project: NAME@{project}.iam.gserviceaccount.com.")


def show_push(shown: Message, config: PushConfig | None) -> None:
    """Fill the push configuration of a subscription that is shown; it stays empty for a pull subscription."""
    shown.SetInParent()
    if config is None:
        return
    shown.push_endpoint = config.endpoint
    form = config.google
    if form is None:
        return
    if form.version:
        shown.attributes[GOOGLE_VERSION] = form.version
    if form.service_account:
        shown.oidc_token.service_account_email = form.service_account
        shown.oidc_token.audience = form.audience
    if not form.is_wrapped:
        shown.no_wrapper.SetInParent()
        shown.no_wrapper.write_metadata = form.write_metadata
