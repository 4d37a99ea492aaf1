"""Operations on things that one client alone changes, so that it knows what may be so, and what is judged of them.

shadow     possible states of a thing
lives      topics and subscriptions that come, go and are made again; detached ones
positions  snapshots, and seeks to them, to times and to offsets
schemas    schemas that change, and publishes that they refuse
lists      access lists by many who read and write them back
logins     tokens, roles and members
keys       publishes that are sent again with their key, and with other messages
ranges     reads of a range of a topic
pushing    receivers of push, and what they have to be sent

A request that was not answered has happened or not, also some seconds later: its client waits for so long, and both are
possible from then on, until an answer says which.
"""
