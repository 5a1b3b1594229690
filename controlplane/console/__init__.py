"""Console: the Instance pages and the Django admin. Their templates are in `templates/`."""
