"""The heart: a process beside each Celery worker. It imports neither Celery nor any code of the application.

Its connection to the control plane, its watch on the broker, the task records and the fence belong here. So do the
rescue of other workers' messages, the claims of jobs, and the end of leftover processes.
"""
