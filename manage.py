#!/usr/bin/env python
"""Commands of the control plane. Installed copies have the program `controlplane` instead."""

from controlplane.__main__ import manage

if __name__ == "__main__":
    manage()
