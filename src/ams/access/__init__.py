"""Rights: role names, permissions, and the admission of requests.

- admission: authenticates the user of a request, and checks that role and rights allow the action
- logins: maps a token of an issuer, or one signed with the key of a named token, to a user
- permissions: role names, the permissions of the table of actions, and the overrides in `roles_file`
- rates: requests a second of users and projects, and concurrent use of each project
"""
