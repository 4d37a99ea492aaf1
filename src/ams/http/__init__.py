"""The HTTP surface: API v1 as the contract says, on raw ASGI for the hot routes and Starlette for the rest.

app            the ASGI application: hot routes, then all others; every answer and every error leaves here
fast           the gate every request passes, and the hot routes: publish, pull and acknowledge
routing        what a handler of an action takes and gives, and which handler an action has
routes/        all other routes, a file for each resource
messages       messages on the wire: what is published and pulled for is read, what is delivered is written
bodies         how JSON bodies are read, and how big ones are split and counted before that
errors         from errors to status codes, and the envelope of an error
limits         what a client may cost: size and time of bodies, memory for bodies and answers, refused bodies
auditing       what of requests is logged, and what goes into the audit log
arrow          messages as Arrow IPC streams (extra `arrow`)
openapi        the description of the API, made of the table of actions
asgi           types of ASGI, where a request comes from, values of a query, and an answer sent as a whole
lane           the fast lane: hot requests whose head is known, answered without ASGI
tls            TLS that follows a renewed certificate, and a local CA for those who have none yet
operations     the port for health checks and metrics
"""
