"""The program `ams`: serving, operating, and a client for people and scripts.

main             the entry point: finds the command and loads only that one
command          how commands of the client are declared
arguments        arguments and options that several commands have; durations and times
output           plain columns or JSON on stdout, everything else on stderr
exits            exit codes, and the one line an error becomes
completing       shell completion
secret_file      a file for a secret that is shown once
google_file      a service account file, as Google's libraries read it
serve            `ams serve`, `push` and `authn serve`
installation     `ams check`, `backup`, `restore`, `export`, `import` and `admin rotate-key`
settings         `ams settings`
status           `ams status`, `version` and `doctor`
audit            `ams audit`
metrics          `ams metrics`
projects         `ams projects`
users            `ams users`, `members`, `registrations` and `admin`
tokens           `ams token`
issuers          `ams issuers` and `bindings`
topics           `ams topics`
subscriptions    `ams subs`
parallel_options options of parallel subscriptions for `ams subs`
snapshots        `ams snapshots`
rights           `ams acl`, and rights as a command line says them
schemas          `ams schemas`
messages         `ams publish`, `pull`, `ack` and `tail`
dead             `ams dead`
apply            `ams apply`
provision        `ams provision`
authn/           `ams authn`, but for serving
pipeline         `ams pipeline`
profiles         `ams profile`
"""
