"""Many workers on one backlog: a parallel subscription, eight workers of two programs, two of them killed.

    python -m demo.work

    site.py ──publishes──▶ topic jobs ──▶ subscription workers (parallel) ──┬──▶ 4 × library.py, the official library
                                                      │                     └──▶ 4 × `ams work`, a shell script a job
                                                      ▼
                                       topic broken-jobs: the job that nobody can do

Each worker writes down every job that it has done, before it acknowledges it. In the end `books.py` compares that with
what was published: no job may be lost, and the one that always fails has to be in the dead letter topic. A job may be
done twice: by a worker that was killed before its acknowledgement, and by another after it.

Read it in this order: `site` (what there is), `library` (a step of the official library), `programs` (how they are
started), `books`, `__main__`. How workers are watched, killed and stopped is in `demo.workers`.
"""
