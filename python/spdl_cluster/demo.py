"""Test data for users who have none: photograph-like pictures, drawn and packed."""

from ._native import pack_pictures

__all__ = ["pack_pictures"]
