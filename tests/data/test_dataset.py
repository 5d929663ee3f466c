"""Held-out batches that several devices share; tokenizers of another run's folder."""

import numpy as np
import pytest

from transformer.core.errors import ConfigError
from transformer.data.dataset import counted, divisible, load_data
from transformer.data.labelled import LabelledConfig
from transformer.data.pairs import PairsConfig
from transformer.data.tagged import TaggedConfig
from transformer.data.tokenizers import CharTokenizer
from transformer.objectives.objective import NextToken
from transformer.runs.data import TextConfig
from transformer.runs.tokenizers import Char


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 6])
def test_devices_share_a_batch_without_changing_what_it_holds(parts):
    rows = {"tokens": np.arange(1, 41).reshape(5, 4, 2), "weights": np.ones((5, 4, 1))}
    shared = divisible(rows, parts)
    size = shared["tokens"].shape[1]
    assert size % parts == 0
    np.testing.assert_array_equal(shared["tokens"][:, :4], rows["tokens"])
    assert not any(array[:, 4:].any() for array in shared.values())


def test_rows_that_fill_a_batch_count_nothing_without_weights_either():
    """All labels of a data set without `weights` count; a split with them is left as it is."""
    rows = {"tokens": np.arange(40).reshape(5, 4, 2)}
    weighed = counted(rows, NextToken())
    assert weighed["weights"].tolist() == np.ones((5, 4, 1)).tolist()
    assert divisible(weighed, 3)["weights"].sum() == 20
    assert counted(weighed, NextToken()) is weighed


def test_more_devices_than_rows_share_several_batches():
    rows = {"tokens": np.arange(1, 41).reshape(5, 4, 2), "weights": np.ones((5, 4, 1))}
    shared = divisible(rows, 9)
    assert {name: array.shape for name, array in shared.items()} == {"tokens": (3, 9, 2), "weights": (3, 9, 1)}
    assert shared["weights"].sum() == 20
    np.testing.assert_array_equal(shared["tokens"][shared["weights"][..., 0] > 0], rows["tokens"].reshape(20, 2))
    in_order = divisible(rows, 9, in_order=True)["tokens"]
    assert in_order.shape == (5, 9, 2)
    np.testing.assert_array_equal(in_order[:, :4], rows["tokens"])


@pytest.mark.parametrize("kind", [TextConfig, LabelledConfig, TaggedConfig, PairsConfig])
def test_the_tokenizers_of_a_folder_are_used(tmp_path, kind):
    """Named by a text or a path, whatever was loaded before; a folder that is not there is refused."""
    (tmp_path / "data.txt").write_text("a\tb\n\na\tb\n" if kind is TaggedConfig else "a\tb\n" * 20)
    field = "source" if kind is PairsConfig else "path"
    config = kind(**{field: str(tmp_path / "data.txt")}, tokenizer=Char(special=True), validation_fraction=0.5)
    own, names = CharTokenizer("zab\t\n ", special=True), load_data(config).tokenizers
    for name in names:
        (tmp_path / f"{name}.json").write_text(own.definition)
    for folder in (str(tmp_path), tmp_path, str(tmp_path)):
        assert load_data(config, folder).tokenizers == dict.fromkeys(names, own)
    for folder in (str(tmp_path / "gone"), tmp_path / "gone"):
        with pytest.raises(ConfigError, match=r"^tokenizer: no file .*gone.*tokenizer\.json$"):
            load_data(config, stored=folder)
