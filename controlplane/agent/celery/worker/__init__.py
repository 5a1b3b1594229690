"""Code that runs inside the Celery worker: in its main process, and in the processes of its pool.

Here belong the boot steps, the protected requests, the worker's own queue of jobs, and the start of the heart process.
"""
