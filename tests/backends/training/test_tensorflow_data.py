"""A tf.data.Dataset trains like the rows that it was made from."""

import tensorflow as tf

from pockengine.tests.backends.c.resuming import same
from pockengine.tests.backends.training.nets import BATCH, compiled, data


def test_a_dataset_of_dicts_or_tuples_trains_as_its_rows() -> None:
    rows = data(22)
    expected = compiled()
    expected.fit(rows, epochs=2, lr=0.02, shuffle=False)
    for parts in (rows, (rows["x"], rows["labels"]), ({"x": rows["x"]}, rows["labels"])):
        net = compiled()
        dataset = tf.data.Dataset.from_tensor_slices(parts).batch(BATCH)
        history = net.fit(dataset, epochs=2, lr=0.02)

        assert [step.epoch for step in history.steps] == [1] * 5 + [2] * 5
        same(net.trained.params(), expected.trained.params())
        assert net.evaluate(dataset) == expected.evaluate(rows)
