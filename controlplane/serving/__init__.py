"""What stands between the web server and Django: bodies arrive here, and calls get their seats."""
