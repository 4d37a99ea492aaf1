"""The main job: a day in the life of a messaging service, small enough to watch.

    python -m demo                  make the data folder, start the service, run the job, leave
    python -m demo --keep-serving   the same, then keep the service running until Ctrl-C

Two kinds of real-looking traffic go through a real service over TLS, with the official client library:

    usage records ──publisher──▶ topic gLite-APEL  ──▶ subscription apel_loader    ──consumer──┐
    probe results ──publisher──▶ topic metric_data ─┬▶ subscription archive_metric ──consumer──┤
                                                    │                                          ▼
                                                    │  Ledger: what came out, byte for byte
                                                    └▶ subscription watch_metric ──push──▶ pushing.py, an https receiver

Read it in this order: `traffic` (who may do what; publish, pull, acknowledge; the comparison), `pushing` (a receiver),
`job` (all of it together), `service` and `report` (around it). The messages are those of `pipeline.samples`.

The other demos are the modules `certificates`, `identity`, `work` and `pubsub`, and the packages `migrate` and
`pipeline`.
"""
