"""Command line of the client: `python -m controlplane.client`.

Exit codes:
- 0 success
- 1 the awaited job, execution or batch ended without success
- 2 wrong command line
- 3 the control plane refused
- 4 no usable answer
- 5 it did not end in time
- 130 interrupted
"""

from __future__ import annotations

import os
import sys

from controlplane.client import Client, Refused, StillRunning, Unreachable, completion
from controlplane.client.failures import INTERRUPTED, REFUSED, STILL_RUNNING, UNREACHABLE, USAGE, complain, explain
from controlplane.client.output import Output
from controlplane.client.parser import build_parser


def main(argv: list[str] | None = None, prog: str = "python -m controlplane.client") -> int:
    """Run one command and return its exit code. Raise SystemExit for `--help` and for a wrong command line."""
    given = build_parser(prog).parse_args(argv)
    if given.command == "completion":  # it needs no control plane
        return completion.run(None, given, Output())
    try:
        url, token_file = getattr(given, "url", None), getattr(given, "token_file", None)
        retry_for = getattr(given, "retry_for", 30.0)
        with Client(url, token_file=token_file, retry_for=retry_for) as client:
            code: int = given.run(client, given, Output(is_json=getattr(given, "json", False)))
            sys.stdout.flush()
            return code
    except ValueError as error:
        return complain(str(error), USAGE)
    except Refused as refused:
        return complain(explain(refused), REFUSED)
    except Unreachable as error:
        return complain(str(error), UNREACHABLE)
    except StillRunning as error:
        return complain(str(error), STILL_RUNNING)
    except BrokenPipeError:  # the reader of the output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
