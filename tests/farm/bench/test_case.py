"""Models that the bench can and cannot train."""

from pathlib import Path

import pytest

from pockengine.errors import FarmError
from pockengine.farm.bench.case import REPEATED, dataset_of, make_case
from pockengine.farm.bench.schemes import SCHEMES


def test_custom_models_are_refused(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").touch()
    for model in ("net:small_net", str(tmp_path / "net.onnx")):
        with pytest.raises(FarmError, match=f"trains listed models .* and not {model}; train"):
            make_case(model, 4, 1)


@pytest.mark.parametrize(
    "model",
    [
        *("cnn-8", "llama-260k-8", "mcunet-64", "mobilenet_v2-0.1-64", "mobilenet_v3_small-64"),
        *("resnet20-8", "vit_tiny-16"),
    ],
)
def test_listed_models_train_with_every_scheme_of_the_bench(model: str) -> None:
    case = make_case(model, 2, 1, schemes=SCHEMES)
    trained = {scheme: case.for_scheme(scheme).job.trainable for scheme in SCHEMES}
    assert 0 < len(trained["sparse"] or ()) < len(trained["full"] or ())


def test_boards_cycle_through_the_same_batches_and_report_their_loss() -> None:
    case = make_case("cnn-8", 2, 2 * REPEATED)
    images = case.data.images
    assert images.shape[:2] == (2 * REPEATED, 2)
    assert (images[:REPEATED] == images[REPEATED:]).all()
    assert (images[0] != images[1]).any()
    losses = [*[0.8] * REPEATED, *[0.5] * REPEATED]
    assert case.learned(losses) == f"mean loss of the same {2 * REPEATED} rows 0.8000 to 0.5000"
    assert case.learned(losses[:3]) == "loss 0.8000"


def test_records_name_the_training_data() -> None:
    assert dataset_of("llama-260k-32") == "drawn tokens"
    assert dataset_of("mobilenet_v2-0.35-96") == "scikit-learn sample photographs"
