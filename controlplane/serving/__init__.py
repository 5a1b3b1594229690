"""Front between the web server and Django: it reads bodies, and limits concurrent calls."""
