"""The verdict on servers and work. Its sentences: clauses; what they are about: servers, work."""

from jobs.verdict.verdict import Verdict, build_verdict

__all__ = ["Verdict", "build_verdict"]
