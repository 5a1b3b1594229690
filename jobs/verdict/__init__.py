"""The verdict on servers and work. `clauses` are its sentences, `servers`, `work` and `snapshots` find the concerns."""

from jobs.verdict.verdict import Verdict, build_verdict

__all__ = ["Verdict", "build_verdict"]
