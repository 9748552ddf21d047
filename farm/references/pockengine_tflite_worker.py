"""The worker process that holds our step in TFLite's runtime; see serve.py and own_reference.py."""

from pockengine.farm.references.own_reference import work

if __name__ == "__main__":
    work("ai-edge-litert", "tflite-runtime")
