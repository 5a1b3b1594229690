"""The secrets of jobs: where the agent finds them, and how it keeps them out of reports and logs."""
