"""`python -m spdl_cluster.run` is the program `spdl-run`."""

from . import main

main()
