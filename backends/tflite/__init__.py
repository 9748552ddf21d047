"""The TFLite backend: a planned program as one TFLite file, with a signature per entry.

It uses built-in operators of the runtime only. Trained params are variables (resources) of the
file.
"""
