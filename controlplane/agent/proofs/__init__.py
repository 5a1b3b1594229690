"""Fast recovery: proof that nothing of a server runs any more, and the report of it to the control plane (Linux).

Most dead agents were killed, and the kernel of their machine knows that. So their jobs need not wait for the timeout.
The lock and the markers that are the proof are in processes/server_file.py. `ending` checks the proof, `sentinel`
reports the death of the agent beside it, and `successor` the deaths that a new agent finds.
"""
