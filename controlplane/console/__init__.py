"""All the HTML: the Instance pages and the Django admin. Templates are in templates/, beside it."""
