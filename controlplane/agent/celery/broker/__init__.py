"""Access to the broker: the protection's keys in Redis and queues in RabbitMQ, and the messages in them.

Code about unacknowledged messages, copies of messages, their return to the queues, and the quarantine belongs here. The
worker and the heart use this package. So it imports kombu, but neither Celery nor code of the application.
"""
