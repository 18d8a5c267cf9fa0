"""Points on rings, and a model that tells the rings apart: code of our own, on no index."""

from rings.data import points
from rings.model import Classifier

__all__ = ["Classifier", "points"]
