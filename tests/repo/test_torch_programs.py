"""Every py_binary with PyTorch's wheels prints its help."""

from pockengine.tests.repo.programs import help_test

test_it_prints_help = help_test("torch")
