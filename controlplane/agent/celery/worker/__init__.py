"""Code that runs inside the Celery worker: in its main process, and in the processes of its pool.

The boot steps, the protected requests, the worker's own queue of jobs, and the start of the heart belong here.
"""
