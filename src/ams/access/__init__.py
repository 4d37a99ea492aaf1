"""Who may do what: role names, the table of permissions, and the admission of requests.

admission      authenticates the user of a request, and checks that role and rights allow the action
logins         from a token of an issuer to the user it is bound to
key_logins     from a token that a program signed itself to the user whose named token has the key
permissions    role names, the table of permissions, and that table as `roles_file` has it
rates          how many requests a second a user may make, and a project may get
"""
