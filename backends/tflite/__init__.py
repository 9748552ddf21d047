"""The TFLite backend: a planned program as one TFLite file, with a signature for each entry.

It has operators of the runtime alone. What training writes are variables (resources) of the file.
"""
