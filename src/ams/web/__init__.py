"""HTTP servers below any application: the API, the certificate service and all operations ports use them.

listener        accepts the connections of one port, within limits
server          one port, from the first connection to an orderly stop
connection      one client's requests and their answers, in order, within limits
request_reader  from bytes to requests, by llhttp, without an event loop
http2_relay     connections of HTTP/2 go on to a server on a Unix socket
asgi_exchange   one request, answered by an ASGI application
answers         heads of answers, and the answer after which a connection is closed
fair_scheduler  projects take turns when there is more work than one iteration of the event loop should take
"""
