"""`python -m spdl_cluster` is the program `spdl-ctl`, which takes the place of this process."""

import os
import sys

from .errors import SpdlError
from .program import path


def main() -> None:
    """Runs `spdl-ctl` with this process's arguments."""
    try:
        program = path()
    except SpdlError as error:
        sys.exit(f"error: {error}")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
