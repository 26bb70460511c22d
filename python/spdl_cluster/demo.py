"""Data for those who have none at hand: photograph-like pictures, drawn and packed."""

from ._native import pack_pictures

__all__ = ["pack_pictures"]
