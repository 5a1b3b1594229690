"""Front between the web server and Django. It reads request bodies and limits concurrent calls."""
