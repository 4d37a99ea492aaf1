"""Availability and reliability of what is monitored.

job         the page: storing results, computing the days that have news, writing what was computed
columns     what each table holds
figures     from results to timelines and events, and from these to figures, in Spark
telling     events published to a topic, each once
board       the figures as rows and plots

Without Spark:

parse       what messages hold
documents   what is said of what is monitored: profiles, topology, downtimes, requests
inputs      options, and what holds on a day because of them
timelines   the algebra of a day
sites       one site on one day, and its events
"""
