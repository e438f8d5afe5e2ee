"""The process that traces: a configuration on standard input, the fields of its model on standard
output.
"""

from __future__ import annotations

import json
import sys
import warnings


def _main() -> None:
    """One configuration."""
    from ..describe.read import to_dict
    from ..errors import BadInput, brief
    from .hf import MEMORY

    _bounded(MEMORY)
    warnings.simplefilter("ignore")
    try:
        config = json.load(sys.stdin)
        from .build import build_model

        made: object = to_dict(build_model(config))
    except BadInput as error:
        made = {"error": str(error)}
    except Exception as error:  # whatever code of others does
        text = (str(error).strip().splitlines() or [""])[0]
        made = {
            "error": "its code does not run without numbers:"
            f" {type(error).__name__}: {brief(text)[:200]}"
        }
    print(json.dumps(made))


def _bounded(most: int) -> None:
    """No more address space than this, where the system can say so."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    _main()
