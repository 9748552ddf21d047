"""The worker process that holds our own engine's C; see serve.py and own_reference.py."""

from pockengine.farm.references.own_reference import work

if __name__ == "__main__":
    work()
