"""The certificate service over HTTPS (contract 2 to 4).

app            the ASGI application: every answer and every error leaves here
routing        which route a request is for
routes         the routes
gate           authentication of management requests
json_bodies    JSON bodies as the reference reads and writes them
errors         from errors to status codes, and the envelope of an error
tls            TLS that asks every client for a certificate, and leaves its verification to the login
proxies        clients behind a proxy: their address and certificate, as the proxy states them
protocol       connections: their limits, and the peer of each request
"""
