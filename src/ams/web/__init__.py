"""HTTP servers for any application: the API, the certificate service and all operations ports use them.

- listener: accepts the connections of one port, within limits
- server: one port, from the first connection to an orderly stop
- connection: the requests of one client and their answers, in order, within limits
- request_reader: parses bytes to requests by llhttp, without an event loop
- http2_relay: forwards HTTP/2 connections to a server on a Unix socket
- asgi_exchange: one request, answered by an ASGI application
- answers: heads of answers, and the answer that closes a connection
- fair_scheduler: projects share an overloaded event loop round robin
"""
