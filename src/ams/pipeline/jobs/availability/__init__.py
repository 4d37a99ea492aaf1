"""Availability and reliability of what is monitored.

job           the job: storing results, computing days, writing what was computed
options       what can be said to it
columns       what each table holds
recomputing   which days have to be computed
daily         from results to timelines and events, in Spark, site by site
figures       from these to the tables: statuses, events, availability and reliability
telling       events published to a topic, each once
board         the figures as rows and plots

Without Spark:

results, synced                               what messages hold
documents, profiles, topology, exceptions     what files say
inputs                                        all of it, day by day
statuses, timelines                           the algebra of a day
sites, events                                 one site on one day
"""
