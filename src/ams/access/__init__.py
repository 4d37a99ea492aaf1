"""Rights: role names, permissions, and the admission of requests.

admission      authenticates the user of a request, and checks that role and rights allow the action
logins         from a token of an issuer, or signed with the key of a named token, to the user
permissions    role names, the permissions of the table of actions, and those as `roles_file` has them
rates          requests a second of users and projects, and what a project may have at a time
"""
