"""Specific reasons for refusing operators."""

NO_RULE = "there is no rule for it; express it by other operators"
KNOWN_ONLY = (
    "its inputs must be known at compile time; make them constants of the model, or give their "
    "values by constants={...}"
)
TREES = "trees have no gradient to train by"
KERNELS = "a kernel machine's support vectors do not train by gradients; fit a linear model"
FOUND = (
    "how much it finds depends on data, and a compiled model has fixed shapes; leave it to the "
    "program that uses the model, and export what comes before"
)
REFUSED = {
    "NonMaxSuppression": FOUND,
    "NonZero": FOUND,
    "SVMClassifier": KERNELS,
    "SVMRegressor": KERNELS,
    "TreeEnsemble": TREES,
    "TreeEnsembleClassifier": TREES,
    "TreeEnsembleRegressor": TREES,
    "Unique": FOUND,
    "ZipMap": "maps instead of a tensor; convert the model with options={'zipmap': False}",
}
"""By operator."""
