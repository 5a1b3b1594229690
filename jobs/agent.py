"""`python -m jobs.agent`: another name of `python -m controlplane.agent`."""

from controlplane.agent.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
