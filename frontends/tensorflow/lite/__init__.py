"""TFLite models; see `importer`. Importing this package registers every rule."""

from pockengine.frontends.tensorflow.lite import ops, recurrent, same, shape

__all__ = ["ops", "recurrent", "same", "shape"]
