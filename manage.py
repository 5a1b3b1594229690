#!/usr/bin/env python
"""The command line of a clone; `controlplane` where it is installed."""

from controlplane.__main__ import main

if __name__ == "__main__":
    main()
