"""The HTTP surface: API v1 of the contract, on raw ASGI for the hot routes and Starlette for the rest.

- app: the ASGI application: hot routes, then all others; sends every answer and every error
- hot_routes: the gate of all requests, and the hot routes: publish, pull and acknowledge
- routing: arguments and answers of handlers, and the handler of each action
- routes/: all other routes, a file for each resource
- messages: messages on the wire: parses publish and pull requests, writes deliveries
- bodies: parses JSON bodies, and splits and counts big ones first
- errors: maps errors to status codes and the error envelope
- limits: limits of clients: size and time of bodies, memory of bodies and answers, refused bodies
- audit: log lines and audit records of requests
- arrow: messages as Arrow IPC streams (extra `arrow`)
- openapi: the description of the API, generated from the table of actions
- asgi: ASGI types, client addresses, query values, and whole answers
- fast_lane: the fast lane: hot requests with a known head, answered without ASGI
- forwarding: passes requests on to the node that owns a subscription
- console: the pages of the console
- tls: reloads renewed certificates; a local CA if there is no certificate yet
- operations: the port for health checks and metrics
"""
