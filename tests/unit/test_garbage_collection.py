"""When Python looks for garbage in processes of the control plane."""

import subprocess
import sys

SERVES = """
import gc
from controlplane.core.garbage_collection import collect_seldom, keep_what_is_imported
collect_seldom()
starting = gc.get_threshold()[0]
keep_what_is_imported()
assert starting > gc.get_threshold()[0] > 700, gc.get_threshold()
assert gc.get_freeze_count() > 0
"""


def test_garbage_is_looked_for_seldom_while_a_process_starts_and_in_small_pieces_once_it_serves():
    subprocess.run([sys.executable, "-c", SERVES], check=True)
