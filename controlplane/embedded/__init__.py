"""Embedded services for a machine with nothing installed: PostgreSQL from its wheel, a broker in a folder, a secret
key."""
