"""A step with TVM's own gradients (`relax.transform.Gradient`) and with ours, in TVM and C."""
