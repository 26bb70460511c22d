"""This project's loader in the trainer's process: documents packed whole, those that are too long in parts."""

from peer.tokens import FORMAT, OURS as REQUIREMENTS, packed as batches, prepare  # noqa: F401

TITLE, SLOW, LAYER = "spdl-cluster", "", None
ENVIRONMENT = "tokens"
PACKAGES = ["spdl-cluster"]
