"""The broker's side of the protection: keys in Redis, queues in RabbitMQ, and the messages in them.

Here belong unacknowledged messages, copies of messages, their return to the queues, and the quarantine. The worker and
the heart use this room, so it imports kombu, but neither Celery nor any code of the application.
"""
