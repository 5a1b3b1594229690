#!/usr/bin/env python
"""The commands of the control plane itself; `controlplane` where it is installed."""

from controlplane.__main__ import manage

if __name__ == "__main__":
    manage()
