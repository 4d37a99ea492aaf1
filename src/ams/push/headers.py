"""Headers of deliveries: who is allowed to send them, what they are, and who signed them (P20).

    Content-Type            application/json
    Authorization           the configuration's value as it is, when there is one
    webhook-id              which messages these are, the same at each retry: P.S.TOPIC.<first>-<last>, their offsets
    webhook-timestamp       seconds since the epoch, of this attempt
    webhook-signature       when there are secrets (`ams.push.signing`)
    ams-delivery-attempt    from 1: how often a delivery that begins with the same message was sent

What every request has, as `Host` and `User-Agent`, is added where requests are made (`ams.outgoing.client`).
Mattermost gets the first of them only (push contract 11): it knows none of the others. What every request has, as
`Host` and `User-Agent`, is added where requests are made (`ams.outgoing.client`). The ids of messages are in the
body, and the first and last offset in `webhook-id`; a header with all of them could grow without bound.
"""

from ams.core.push_config import MATTERMOST
from ams.push.sending import Headers
from ams.push.signing import key, signatures
from ams.push.target import Target
from ams.push.upstream import Pulled

_TOPIC_CHARACTERS = 8
"""Of a topic's identity in `webhook-id`: its messages begin at offset 0 again when it is made anew, and are others."""


class DeliveryHeaders:
    """Makes the headers of one target's deliveries; raises `ValueError` for what no header can be made of."""

    def __init__(self, target: Target) -> None:
        config = target.config
        self._plain = config.type == MATTERMOST
        self._fixed = [("Content-Type", "application/json")]
        if config.header_value and not self._plain:
            self._fixed.append(_authorization(config.header_value))
        self._keys = [key(each) for each in target.secrets]
        self._prefix = _prefix(target)

    def headers(self, first: Pulled, last: Pulled, body: bytes, *, attempt: int, now: int) -> Headers:
        """Return the headers of a delivery of the messages from `first` to `last`; `now` in seconds."""
        if self._plain:
            return self._fixed
        webhook_id = f"{self._prefix}{first.offset}-{last.offset}"
        made = [
            *self._fixed,
            ("webhook-id", webhook_id),
            ("webhook-timestamp", str(now)),
            ("ams-delivery-attempt", str(attempt)),
        ]
        if self._keys:
            made.append(("webhook-signature", signatures(self._keys, webhook_id, now, body)))
        return made


def _authorization(value: str) -> tuple[str, str]:
    if not (value.isascii() and value.isprintable()):
        raise ValueError("the authorization header has characters that no header can carry")
    return "Authorization", value


def _prefix(target: Target) -> str:
    """Return what every id of the target begins with: names have no dots (HTTP contract 2), so parts are clear."""
    match target.path.split("/"):
        case ["", "projects", project, "subscriptions", subscription]:
            topic = f"{target.topic_id[:_TOPIC_CHARACTERS]}." if target.topic_id else ""
            return f"{project}.{subscription}.{topic}"
    raise ValueError("the resource name is not that of a subscription")
