"""Programs in Node: the federation registry's agent (axios) and the registration page's proxy."""

from tests.acceptance.clients.wire import Says, lists

_AXIOS = """
Accept: application/json, text/plain, */*
Content-Type: application/json
x-api-key: $token
User-Agent: axios/0.21.4
"""
_GET = _AXIOS.replace("Content-Type: application/json\n", "")
_TOPIC = "/v1/projects/$P/topics/demo_egi_service_keycloak_demo"
_SUBSCRIPTION = "/v1/projects/$P/subscriptions/demo_egi_service_keycloak_demo_deployer_1"

FEDERATION_AGENT = [
    Says(f"GET {_TOPIC}", _GET, status=404, why="A10: 404 means make it"),
    Says(f"PUT {_TOPIC}", _AXIOS, "{}"),
    Says(f"GET {_TOPIC}:acl", _GET, needs=lists("authorized_users"), why="A23: a fresh list, empty"),
    Says(f"POST {_TOPIC}:modifyAcl", _AXIOS, '{"authorized_users":["$P-agent"]}'),
    Says(f"GET {_TOPIC}/subscriptions", _GET, needs=lambda document: document["subscriptions"] == []),
    Says(f"PUT {_SUBSCRIPTION}", _AXIOS,
         '{"topic":"projects/$P/topics/demo_egi_service_keycloak_demo","ackDeadlineSeconds":10}'),
    Says(f"GET {_TOPIC}/subscriptions", _GET, why="A4: compares the whole text",
         needs=lambda document: document["subscriptions"][0].endswith(
             "/subscriptions/demo_egi_service_keycloak_demo_deployer_1") and
         document["subscriptions"][0].startswith("/projects/")),
    Says(f"GET {_SUBSCRIPTION}:acl", _GET, needs=lists("authorized_users")),
    Says(f"POST {_SUBSCRIPTION}:modifyAcl", _AXIOS, '{"authorized_users":["$P-agent"]}'),
    Says(f"POST {_TOPIC}:publish", _AXIOS.replace("$token", "$agent_token"),
         '{"messages":[{"attributes":{},"data":"eyJpZCI6MSwiZGVwbG95bWVudF90eXBlIjoiY3JlYXRlIn0="}]}',
         needs=lists("messageIds")),
]  # fmt: skip
REGISTRATION_PROXY = [
    Says("POST /v1/registrations?key=$service_token", "Content-Type: application/json;charset=utf-8",
         '{"name":"$P-form","first_name":"First","last_name":"Last","organization":"Org","description":"Text",'
         '"email":"first@site.example"}',
         needs=lambda document: document["status"] == "pending" and document["registered_at"].endswith("Z")
         and [document[name] for name in ("first_name", "last_name", "organization", "description")]
         == ["First", "Last", "Org", "Text"]),
]  # fmt: skip
