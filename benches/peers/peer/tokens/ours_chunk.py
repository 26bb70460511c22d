"""This project's loader in the trainer's process: a text without gaps."""

from peer.tokens import FORMAT, OURS as REQUIREMENTS, chunked as batches, prepare  # noqa: F401

TITLE, SLOW, LAYER = "spdl-cluster, `chunk`", "", None
ENVIRONMENT = "tokens"
PACKAGES = ["spdl-cluster"]
