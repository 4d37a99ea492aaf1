"""The use cases: what can be done with topics, subscriptions, users and the rest, without HTTP and without SQL.

publishing        a request of messages is stored at the end of its topic, all or none
delivering        pull and acknowledge
seeking           where a subscription stands, moving it, and snapshots
reading           ranges of a topic, for tools that keep their own position
retention         how long messages are kept, the count of those that were lost by it, and lags
stored_bytes      bytes of each project, and whether it may store more
counting          tallies of topics, projects, days and subscriptions, in step with the log
projects          projects, their members, their quotas with the use, and removing what a crash left of deleted ones
users             users, registrations, named tokens, and the first administrator
issuers           OpenID Connect issuers: those of the settings and those that were set; bindings
topics            topics, and who may publish to them
subscriptions     subscriptions, who may consume from them, and their expiry
schemas           schemas, and asking them about messages without publishing
validators        compiled schemas that are in use, checks that block no other request, revisions that messages keep
parallel/         leases, acknowledgements one by one, and retries of parallel subscriptions
dead_letters      messages that failed too often are put aside
push/             push configurations, and who delivers what
metrics           metrics of the node, projects, topics and subscriptions
history, live     the last day of a project, and live views
doctor            why nothing arrives at a subscription
service_doctor    status and version of the service, what is wrong with it, and what to do about it
lookup            finds what a request names, or raises the error when it is not there
"""
