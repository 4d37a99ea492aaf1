"""The reference is moved to this service while five kinds of clients work.

    python -m demo.migrate [--small]

    library, requests, curl, client ──https──▶ haproxy ──▶ old: the original (or a stand-in) on MongoDB and Kafka
    receiver of pushes ◀──https── push server ──▶    └───▶ new: `ams serve`

A made-up day of EGI is written to MongoDB and Kafka. The clients publish, pull and acknowledge through haproxy and
write down each call. Meanwhile `ams migrate copy` runs twice and `ams migrate cut` once, which holds requests in
haproxy while the services are changed. In the end the books of the clients are added up, and all answers and messages
of both sides are compared.

Read `site` (names for the clients), `day` (the data), and `sides` and `old` (the two services) first. Then read
`clients`, `operator` (the commands), `__main__`, and `books` (the result).
"""
