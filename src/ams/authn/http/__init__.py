"""The certificate service over HTTPS (contract 2 to 4).

app          the ASGI application: every answer and every error leaves here
routes       the routes, and which one a request is for
gate         authentication of management requests
json_bodies  JSON bodies as the reference reads and writes them
errors       from errors to status codes, and the envelope of an error
tls          the port: TLS that asks every client for a certificate, and leaves its verification to the login
proxies      clients behind a proxy: their address and certificate, as the proxy states them
"""
