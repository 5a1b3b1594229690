"""The heart: a process beside each Celery worker. It imports neither Celery nor any code of the application.

Here belong its connection to the control plane, its watch on the broker, the records of tasks, and the fence. So do
the rescue of other workers' messages, the claims of jobs, and the end of leftover processes.
"""
