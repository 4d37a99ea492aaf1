"""Named tokens: docs/reference/tokens.md."""

from tests.contract.rows import *
from tests.support.program_keys import public_key, public_pem

U = user("u")
MINE, ONE, NONE = "/users/$P-u/tokens", "/users/$P-u/tokens/ci", "/users/$P-none/tokens"
NO_TOKEN = error("NF", "Token doesn't exist")
NOT_GOOD = error("FO", "The token is not good for this")
EXPIRED = error("UN", "The token has expired")
RIGHT = {"action": "topics:publish", "resource": "projects/$P/topics/T"}
MESSAGES = {"messages": [{"data": "aGk="}]}
OF_ADM = "/users/$P-adm/tokens/ci"


MADE = [
    Row("tokens", "a user makes a token of its own", post(ONE, by="u"),
        Answer({"name": "ci", "user": "$P-u", "created_on": DATE, "created_by": "$P-u", "token": TOKEN}), (U,),
        ((get(ONE), Answer(Has(name="ci", token=None))), (get(MINE, by="u"), Answer({"tokens": [Has(name="ci")]})))),
    Row("tokens", "an administrator makes one with a time and rights", post(ONE, {"expires_on": "2999-12-31",
        "rights": [RIGHT]}), Answer(Has(expires_on="2999-12-31T00:00:00Z", rights=[RIGHT], created_by="admin")), (U,)),
    Row("tokens", "a token with a public key has no text", post(ONE, {"public_key": public_pem()}),
        Answer({"name": "ci", "user": "$P-u", "created_on": DATE, "created_by": "admin", "key_id": public_key().id,
            "client_email": f"ci@{public_key().id}.ams.invalid"}), (U,),
        ((get(ONE), Answer(Has(key_id=public_key().id, token=None))), (delete(ONE), EMPTY))),
    Row("tokens", "a revoked token is dead", delete(ONE, by="u"), EMPTY, (U, post(ONE, remember="ci")),
        ((get("/users/profile", by="ci"), UNAUTHORIZED), (get(ONE), NO_TOKEN))),
    Row("tokens", "rights take away", post(TOPIC + ":publish", MESSAGES, by="ci"), OK, (put(TOPIC), ADM, post(OF_ADM,
        {"rights": [RIGHT]}, remember="ci")), ((get(TOPICS, by="ci"), NOT_GOOD), (get(OF_ADM, by="ci"), NOT_GOOD))),
    Row("tokens", "an expired token is refused", get(TOPICS, by="ci"), EXPIRED,
        (ADM, post(OF_ADM, {"expires_in": 60}, remember="ci"), Wait(61))),
]  # fmt: skip

UNREADABLE = [
    ("a body is one of the kind", {"right": []}, "Invalid Token Arguments"),
    ("a body is an object", [], "Invalid Token Arguments"),
    ("a right is an object", {"rights": ["topics:publish"]}, "Invalid Token Arguments"),
    ("a span is a number", {"expires_in": "60"}, "Invalid Token Arguments"),
    ("a time is a time", {"expires_on": "soon"}, "Invalid expires_on"),
    ("a day is in the calendar", {"expires_on": "9999-99-99"}, "Invalid expires_on"),
    ("a key is one", {"public_key": "PEM"},
     "Invalid public_key: give an RSA key of 2048 to 4096 bits and exponent 65537, in PEM"),
]  # fmt: skip
"""Bodies that are refused before the user is looked for."""
REFUSED = [
    ("one time is enough", {"expires_on": "2999-12-31", "expires_in": 1}, "Give expires_on or expires_in, not both"),
    ("what is dead is not made", {"expires_in": 0}, "The token would have expired already"),
    ("a time can be written", {"expires_in": 10**15},
     "The token would expire after the year 9999: leave the time out for none"),
    ("a token is good for something", {"rights": []},
     "A token is good for something: give it a right, or leave rights out for all of the user's"),
    ("rights are not too many", {"rights": [RIGHT | {"action": f"a:{n}"} for n in range(101)]},
     "A token has at most 100 rights"),
    ("an action is one", {"rights": [RIGHT | {"action": "topics:dance"}]}, "invalid action: topics:dance"),
    ("a resource is one", {"rights": [RIGHT | {"resource": "topics/T"}]}, "invalid resource: topics/T"),
    ("a right has a resource", {"rights": [{"action": "topics:publish"}]}, "invalid resource: "),
]  # fmt: skip
"""Bodies of which no token is made."""
ERRORS = [
    Row("tokens", "tokens of nobody are not listed", get(NONE), NO_USER),
    Row("tokens", "nor shown", get(NONE + "/ci"), NO_USER, (),
        ((post(NONE + "/ci"), NO_USER), (delete(NONE + "/ci"), NO_USER))),
    Row("tokens", "a token that is not there is not shown", get(ONE), NO_TOKEN, (U,), ((delete(ONE), NO_TOKEN),)),
    Row("tokens", "a name is a name", post(MINE + "/a.b"), error("IA", "Invalid token name")),
    *[Row("tokens", says, post(ONE, body), error("IA", text)) for says, body, text in UNREADABLE],
    *[Row("tokens", says, post(ONE, body), error("IA", text), (U,)) for says, body, text in REFUSED],
    Row("tokens", "no token outlives the one it is made with", post(MINE + "/more", by="ci"),
        error("IA", "The token would outlive the one it is made with: it must expire no later"),
        (U, post(ONE, {"expires_in": 60}, remember="ci"))),
    Row("tokens", "a name is taken once", post(ONE), error("AE", "Token already exists"), (U, post(ONE))),
    Row("tokens", "a key is of one token", post(ONE, {"public_key": public_pem("two")}),
        error("AE", "The key is another token's already"),
        (U, post(MINE + "/other", {"public_key": public_pem("two")})), ((delete(MINE + "/other"), EMPTY),)),
]  # fmt: skip

ROWS = every(MADE, ERRORS)
