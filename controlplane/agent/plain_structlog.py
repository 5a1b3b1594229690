"""Import of structlog without rich. Import this module before any other that uses structlog.

structlog imports rich, if it is installed, to colour tracebacks. That takes a quarter of the start of an agent, and the
agent writes plain tracebacks.
"""

import sys

if "structlog" not in sys.modules and "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog  # noqa: F401

    del sys.modules["rich"]
