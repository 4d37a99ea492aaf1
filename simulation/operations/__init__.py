"""Operations on resources that a single client changes, so that it knows their possible states, and their checks.

shadow     possible states of a resource
lives      topics and subscriptions: creation, deletion, creation again; detached ones
positions  snapshots, and seeks to them, to times and to offsets
schemas    changes of schemas, and publishes that they refuse
lists      access lists that many clients read and write back
logins     tokens, roles and members
keys       publishes repeated with their key, and with other messages
ranges     reads of a range of a topic
pushing    receivers of push, and the deliveries that they must get

An unanswered request may still happen some seconds later. Its client waits that long. Then both states are possible,
until an answer shows one.
"""
