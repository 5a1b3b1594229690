"""The checks that decide whether this machine gets work.

Here belong the probe, the search for runtimes, the check that code can start, the self-cordon, the memory of tasks and
the kernel's kills, and the status file for `--check`.
"""
