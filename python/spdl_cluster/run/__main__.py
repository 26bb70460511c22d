"""`python -m spdl_cluster.run` is the program `spdl-run`."""

from . import main

if __name__ == "__main__":
    main()
