"""Section 6: registrations; and rows of 17.3 about them."""

from tests.contract.rows import *

ALL = "/registrations"
ONE = ALL + "/$uuid_r"
NONE = ALL + "/none"
NO_REGISTRATION = error("NF", "User registration doesn't exist")
BAD_ARGUMENTS = error("IA", "Invalid User Arguments")
BAD_BODY = error("BR", "Invalid Request Body")
USER_TAKEN = error("AE", "User already exists")
ASKED_ALREADY = error("AE", "User registration already exists")
DECLINED = post(ONE + ":decline", {"comment": "no place"})


def register(name: str = "n", remember: str = "r", **said: object) -> Request:
    return post(ALL, {"name": f"$P-{name}", **said}, remember=remember)


ASKED = register("n", **PERSON)
PENDING = {"uuid": "$uuid_r", "name": "$P-n", **PERSON, "status": "pending", "activation_token": "$activation_r",
           "registered_at": DATE}  # fmt: skip
DECIDED = {"uuid": "$uuid_r", "name": "$P-n", **PERSON, "registered_at": DATE, "modified_at": "$now"}


def listing(*names: str) -> Answer:
    return Answer({"user_registrations": [Has(name=f"$P-{name}") for name in names]})


ASKING = [
    Row("6", "the whole answer of a registration", ASKED,
        Answer({**PENDING, "uuid": UUID, "activation_token": TOKEN, "registered_at": "$now"})),
    Row("6", "no field but the name is needed; empty ones are shown", register(),
        Answer({**PENDING, **dict.fromkeys(PERSON, ""), "uuid": UUID, "activation_token": TOKEN})),
    Row("6", "null is absent, fields are matched without regard to case, unknown ones ignored",
        post(ALL, {"NAME": "$P-n", "Email": "f@o.example", "first_name": None, "status": "accepted", "x": [1]}),
        Answer(Has(name="$P-n", email="f@o.example", first_name="", status="pending"))),
    Row("6", "the service token may register, as the form's proxy does", post(ALL + "?key=the-service-token",
        {"name": "$P-n", **PERSON}, by="nobody"), Answer(Has(name="$P-n", **PERSON))),
    Row("6", "nobody may not", register()._replace(by="nobody"), UNAUTHORIZED),
    Row("6", "a body that is no JSON", post(ALL, b"no"), BAD_ARGUMENTS),
    Row("6", "an empty body", post(ALL), BAD_ARGUMENTS),
    Row("6", "a number for a text", post(ALL, {"name": "$P-n", "email": 1}), BAD_ARGUMENTS),
    Row("6", "text after the value", post(ALL, b'{"name": "n"} x'), BAD_ARGUMENTS),
    Row("17.3 U5", "no name", post(ALL, PERSON), BAD_ARGUMENTS),
    Row("17.3 U5", "a null name", post(ALL, {"name": None}), BAD_ARGUMENTS),
    Row("17.3 U5", "an empty name", post(ALL, {"name": ""}), BAD_ARGUMENTS),
    Row("17.3 U5", "a null body", post(ALL, None), BAD_ARGUMENTS),
    Row("17.3 U4", "a bad name", post(ALL, {"name": "a/b"}), error("IA", "Invalid user name")),
    Row("17.3 U4", "a blank name", post(ALL, {"name": " "}), error("IA", "Invalid user name")),
    Row("17.3 U4", "a name that is too long", post(ALL, {"name": "n" * 256}), error("IA", "Invalid user name")),
    Row("6", "a user has that name", register(), USER_TAKEN, (user("n"),), ((get(ALL + "?name=$P-n"), listing()),)),
    Row("17.3 U5", "one pending registration for a name", register(), ASKED_ALREADY, (ASKED,),
        ((get(ALL + "?name=$P-n"), listing("n")),)),
    Row("17.3 U5", "who was declined may ask again", register(), Answer(Has(status="pending")), (ASKED, DECLINED),
        ((get(ALL + "?name=$P-n"), listing("n", "n")),)),
    Row("17.3 U5", "a registration that was deleted does not count", register(), OK, (ASKED, delete(ONE))),
]  # fmt: skip

READING = [
    Row("6", "show a pending one", get(ONE), Answer(PENDING), (ASKED,)),
    Row("6", "show a declined one", get(ONE), Answer({**DECIDED, "status": "declined", "modified_by": "admin",
        "decline_comment": "no place"}), (ASKED, DECLINED)),
    Row("6", "show an accepted one", get(ONE), Answer({**DECIDED, "status": "accepted", "modified_by": "admin"}),
        (ASKED, post(ONE + ":accept"))),
    Row("6", "show an unknown one", get(NONE), NO_REGISTRATION),
    Row("1.5 2", "a bad uuid, before the token", get(ALL + "/a.b", by="nobody"), error("IA", "Invalid uuid name")),
    Row("6, clients A5", "the list, oldest first", get(ALL + "?organization=$P-o"), listing("b", "a"),
        (register("b", organization="$P-o"), register("a", organization="$P-o"), register("c", organization="O"))),
    Row("6, clients A5", "an empty list is a list", get(ALL + "?name=$P-none"), listing()),
    Row("6", "without filters the list holds all", get(ALL), Answer({"user_registrations": ListWith(Has(**PENDING))}),
        (ASKED,)),
    Row("6", "an empty filter is none", get(ALL + "?status=&name="),
        Answer({"user_registrations": ListWith(Has(**PENDING))}), (ASKED,)),
    Row("6", "the filter status", get(ALL + "?status=declined&organization=$P-o"), listing("n"),
        (register("n", organization="$P-o"), register("m", "m", organization="$P-o"), DECLINED)),
    Row("6", "the filter activation_token", get(ALL + "?activation_token=$activation_r"), listing("n"),
        (ASKED, register("m", "m"))),
    Row("6", "the filter name", get(ALL + "?name=$P-n"), listing("n"), (ASKED, register("m", "m"))),
    Row("6", "the filter email", get(ALL + "?email=$P@o.example"), listing("n"),
        (register("n", email="$P@o.example"), register("m", email="$P@O.example"))),
    Row("6", "filters are exact", get(ALL + "?name=$P-"), listing(), (ASKED,)),
    Row("6", "filters are combined with and", get(ALL + "?name=$P-n&status=accepted"), listing(), (ASKED,)),
]  # fmt: skip

DECIDING = [
    Row("6", "accept answers the new user with a token, without roles and projects", post(ONE + ":accept"),
        Answer({"uuid": UUID, "name": "$P-n", **PERSON, "service_roles": [], "token": TOKEN, "created_on": "$now",
        "modified_on": "$now", "created_by": "admin"}), (ASKED,), ((get("/users/$P-n"), Answer(Has(**PERSON))),)),
    Row("6", "the token of the new user is its own", get("/users/profile", by="new"), Answer(Has(name="$P-n")),
        (ASKED, post(ONE + ":accept", remember="new"))),
    Row("6, clients R6", "accept, whatever the body is", post(ONE + ":accept", b'""'), Answer(Has(name="$P-n")),
        (ASKED,)),
    Row("6", "accept by the service token names nobody", get(ONE), Answer(Has(status="accepted", modified_by=None,
        modified_at="$now", activation_token=None)), (ASKED, Wait(60), post(ONE + ":accept", by="service"))),
    Row("6", "accept an unknown one", post(NONE + ":accept"), NO_REGISTRATION),
    Row("6", "accept twice", post(ONE + ":accept"), NO_REGISTRATION, (ASKED, post(ONE + ":accept"))),
    Row("6", "accept a declined one", post(ONE + ":accept"), NO_REGISTRATION, (ASKED, DECLINED),
        ((get("/users/$P-n"), NO_USER),)),
    Row("6", "accept when the name is taken by now leaves it pending", post(ONE + ":accept"), USER_TAKEN,
        (ASKED, user("n")), ((get(ONE), Answer(PENDING)),)),
    Row("6", "accept when a user was renamed to the name", post(ONE + ":accept"), USER_TAKEN,
        (ASKED, user("m"), put("/users/$P-m", {"name": "$P-n"}))),
    Row("6", "decline with a comment", DECLINED, Answer({}), (ASKED,), ((get(ONE), Answer(Has(status="declined",
        decline_comment="no place", activation_token=None))), (get("/users/$P-n"), NO_USER))),
    Row("6", "decline with an empty body", post(ONE + ":decline"), Answer({}), (ASKED,),
        ((get(ONE), Answer(Has(status="declined", decline_comment=None))),)),
    Row("6", "decline with an empty object", post(ONE + ":decline", {}), Answer({}), (ASKED,)),
    Row("6", "decline with a null comment", post(ONE + ":decline", {"comment": None}), Answer({}), (ASKED,)),
    Row("6, 1.2", "decline matches its field exactly", post(ONE + ":decline", {"Comment": "x"}), Answer({}), (ASKED,),
        ((get(ONE), Answer(Has(decline_comment=None))),)),
    Row("6, 1.2", "decline reads the first value only", post(ONE + ":decline", b' {"comment": "x"} and more'),
        Answer({}), (ASKED,), ((get(ONE), Answer(Has(decline_comment="x"))),)),
    Row("6", "decline with a body that is no JSON", post(ONE + ":decline", b"no"), BAD_BODY, (ASKED,),
        ((get(ONE), Answer(PENDING)),)),
    Row("6", "decline with a body that is no object of texts", post(ONE + ":decline", {"comment": 1}), BAD_BODY,
        (ASKED,), ((get(ONE), Answer(PENDING)),)),
    Row("6", "decline with a list", post(ONE + ":decline", []), BAD_BODY, (ASKED,)),
    Row("6", "decline an unknown one, before the body", post(NONE + ":decline", b"no"), NO_REGISTRATION),
    Row("6", "decline twice, before the body", post(ONE + ":decline", b"no"), NO_REGISTRATION, (ASKED, DECLINED)),
    Row("6", "decline an accepted one", DECLINED, NO_REGISTRATION, (ASKED, post(ONE + ":accept"))),
    Row("6", "a decider who is gone is omitted", get(ONE), Answer(Has(status="declined", modified_by=None)),
        (ASKED, user("sa", "service_admin"), DECLINED._replace(by="sa"), delete("/users/$P-sa"))),
    Row("6", "delete a pending one", delete(ONE), EMPTY, (ASKED,), ((get(ONE), NO_REGISTRATION),)),
    Row("6", "delete an accepted one; the user stays", delete(ONE), EMPTY, (ASKED, post(ONE + ":accept")),
        ((get("/users/$P-n"), OK),)),
    Row("6", "delete an unknown one", delete(NONE), NO_REGISTRATION),
]  # fmt: skip

ROWS = [*ASKING, *READING, *DECIDING]
