"""The interface between the code of a job and the agent.

Here belong the functions that a job's code calls (progress, checkpoint, context, handler, pulse) and the modules that
read and limit what that code writes. Nothing here trusts the code of a job, and nothing here imports another room.
"""
