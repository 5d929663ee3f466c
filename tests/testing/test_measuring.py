"""What is decoded and measured with is checked by `check_variant`, and a planted mistake is found by its property."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.data.tasks.task import AlgorithmicTask
from transformer.functional.attention import NEVER
from transformer.inference.beam import Beam
from transformer.inference.processors import Processor
from transformer.inference.strategies import Strategy
from transformer.inference.tokenwise import TokenStrategy
from transformer.study.probes import FirstKey, LongerText, Probe, QueryKeyGradient, SaturatedRows
from transformer.testing import check_variant
from transformer.testing.check import CHECKS
from transformer.testing.options import shipped

SHIPPED = [
    *(value for family in (Processor, Strategy, AlgorithmicTask) for value in shipped(family)),
    *(FirstKey(), LongerText(), QueryKeyGradient(), SaturatedRows()),
]


@pytest.mark.parametrize("value", SHIPPED, ids=str)
def test_every_shipped_one(value):
    own = CHECKS[value.family()]
    assert {f"{own.context}, {check.__name__}" for check in own.wanted} >= set(check_variant(value).passed[:-1])


@dataclass(frozen=True)
class PlantedProcessor(Processor):
    mistake: str = ""

    def __call__(self, logits_BV, history):
        if self.mistake == "past the length":
            return logits_BV.at[jnp.arange(len(logits_BV)), history.tokens_BS[:, -1]].set(NEVER)
        if self.mistake == "batch":
            logits_BV = logits_BV - logits_BV.mean(0)
        logits_BV = logits_BV.at[:, 3].set(NEVER)
        return jnp.where(logits_BV > 0, -jnp.inf, logits_BV) if self.mistake == "infinite" else logits_BV


@dataclass(frozen=True, kw_only=True)
class PlantedStrategy(TokenStrategy):
    mistake: str = ""

    def __call__(self, logits_BV, key):
        if self.mistake == "end":
            return jnp.full(len(logits_BV), logits_BV.shape[1], jnp.int32)
        hotter = logits_BV / 2 if self.mistake == "temperature" else logits_BV
        return jax.random.categorical(key, hotter).astype(jnp.int32)

    def distribution(self, logits_BV):
        shared_BV = logits_BV - logits_BV.mean(0) if self.mistake == "batch" else logits_BV
        return jax.nn.softmax(shared_BV, 0 if self.mistake == "axis" else 1)


@dataclass(frozen=True, kw_only=True)
class PlantedBeam(Beam):
    """Forgets where a continuation ends."""

    def decode(self, prompt, key):
        found = super().decode(prompt, key)
        return found._replace(lengths_B=jnp.full_like(found.lengths_B, prompt.num_tokens))


@dataclass(frozen=True)
class PlantedTask(AlgorithmicTask):
    symbols = ("a", "b")
    length = 3
    mistake: str = ""

    def examples(self, rng, count):
        rng = np.random.default_rng() if self.mistake == "chance" else rng
        tokens = rng.integers(5, 7, (count, 3)).astype(np.int32)
        tokens[:, 2 if self.mistake == "" else 1] = 0 if self.mistake in ("", "hole") else 5
        scored = np.zeros((count, 3), bool)
        scored[:, 0 if self.mistake == "first" else 1] = True
        return tokens, scored


@dataclass(frozen=True)
class PlantedProbe(Probe):
    mistake: str = ""
    label = "largest weight"

    def __call__(self, config, params, data):
        largest_R = np.max([np.abs(leaf).reshape(len(leaf), -1).max(1) for leaf in jax.tree.leaves(params)], 0)
        if self.mistake == "mean":
            return np.full_like(largest_R, largest_R.mean())
        return largest_R.mean() if self.mistake == "one" else largest_R


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (
            PlantedProcessor("past the length"),
            "processor, of_what_was_read: other tokens past the length: other",
        ),
        (PlantedProcessor("batch"), "processor, of_its_sequence: a sequence beside others: differs"),
        (PlantedProcessor("infinite"), "processor, logits_again: a logit is not finite; NEVER forbids a token"),
        (PlantedStrategy(mistake="end"), "strategy, drawn_as_said: it chooses a token that is none"),
        (PlantedStrategy(mistake="temperature"), r"strategy, drawn_as_said: token \d+ is chosen \d+ times of 4096"),
        (PlantedStrategy(mistake="batch"), "strategy, probable: a sequence beside others: differs"),
        (PlantedStrategy(mistake="axis"), "strategy, probable: the sum of the probabilities is not 1"),
        (PlantedBeam(), "strategy, decodes: a continuation goes on after the stop token"),
        (PlantedTask("chance"), "task, of_its_generator: the same generator draws other examples"),
        (PlantedTask("hole"), "task, padded_at_the_end: an example has padding before its end"),
        (PlantedTask("first"), "task, answered: the first token of an example is an answer"),
        (PlantedProbe("mean"), "probe, of_each_run: of runs alone it finds"),
        (PlantedProbe("one"), r"probe, of_each_run: it returns \(\) for 2 runs"),
    ],
    ids=str,
)
def test_a_planted_mistake_is_found(value, found):
    with pytest.raises(AssertionError, match=found):
        check_variant(value)


@pytest.mark.parametrize("value", [PlantedProcessor(), PlantedStrategy(), PlantedTask(), PlantedProbe()], ids=str)
def test_without_a_mistake_nothing_is_found(value):
    assert check_variant(value).failed == []
