"""The worker: claims jobs, runs each in a child process, reports. Imports no Django."""
