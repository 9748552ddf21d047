"""A step by TVM's own gradients (`relax.transform.Gradient`) beside ours, in TVM and in C."""
