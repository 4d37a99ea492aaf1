"""The use cases: what can be done with topics, subscriptions, users and the rest, without HTTP and without SQL.

publishing        a request of messages is stored at the end of its topic, all or none
delivering        pull and acknowledge
seeking           where a subscription stands, and moving it
reading           ranges of a topic, for tools that keep their own position
retention         how long messages are kept, and the count of those that were lost by it
counting          tallies of topics, projects, days and subscriptions, in step with the log
projects          projects, and removing what a crash left of deleted ones
members           the members of a project
users             users, registrations, and the first administrator
tokens            named tokens of users
issuers           OpenID Connect issuers: those of the settings and those that were set
topics            topics, and who may publish to them
subscriptions     subscriptions, and who may consume from them
snapshots         where parallel subscriptions stood
schemas           schemas, and asking them about messages without publishing
fitting           which revision of a schema messages keep, where it is said how they are written
validators        compiled schemas that are in use, and checks that block no other request
parallel/         leases, acknowledgements one by one, and retries of parallel subscriptions
dead_letters      messages that failed too often are put aside
push/             push configurations, and who delivers what
metrics           metrics of the node, projects, topics and subscriptions
about             the service about itself: status and version
doctor            why nothing arrives at a subscription
service_doctor    what is wrong with the service itself, and what to do about it
lookup            finds what a request names, or raises the error when it is not there
"""
