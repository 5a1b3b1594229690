"""The HTTP side of the agent: all that is sent to the control plane, and all that it answers.

Here belong the client, the registration, the threads for heartbeats, reports, claims and hints, and the reports that
wait for an answer. Nothing here starts a process.
"""
