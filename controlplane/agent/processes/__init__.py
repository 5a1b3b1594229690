"""The processes that run the code of jobs, and what they inherit.

Here belong the supervisor and the reaper, child processes and fork servers, their environment and folder, and what the
agent sees of them from outside. Nothing here knows types of actions.
"""
