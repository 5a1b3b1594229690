"""What is there when nothing is installed: PostgreSQL from its wheel, a broker in a folder, a secret key."""
