"""What counts as passed, as refused and as failed."""

from dataclasses import dataclass

import jax.numpy as jnp
import pytest

from transformer.activations.activation import Activation
from transformer.analysis.counts import forward_flops
from transformer.core.arrays import dense
from transformer.core.errors import ConfigError
from transformer.core.parameters import Parameter
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.base import ScoreMod
from transformer.mixers.attention.score_mods import SoftCap, SSMax
from transformer.mixers.recurrent.recurrence import Recurrence
from transformer.norms.norm import Norm
from transformer.testing import comparing, twins
from transformer.testing.check import Checked, check_choices, check_variant, refusals
from transformer.testing.comparing import applies
from transformer.testing.covering import refusal
from transformer.testing.subject import Subject, small


def raises(error):
    def check():
        raise error

    return check


def test_only_what_holds_has_passed():
    """A refusal that comes when the model runs is a failure, as any other error is; others are still checked."""
    checked = Checked({})
    checked.run("decoder", "holds", lambda: None)
    checked.run("decoder", "elsewhere", lambda: applies(False))
    for error in (AssertionError("no"), ZeroDivisionError("division\nby zero"), ConfigError("use pre"), KeyError("x")):
        checked.run("encoder", "breaks", raises(error))
    assert checked.passed == ["decoder, holds"]
    assert checked.refused == {}
    assert [text.removeprefix("encoder, breaks: ") for text in checked.failed] == [
        "no",
        "ZeroDivisionError: division",
        "ConfigError: use pre",
        "KeyError: 'x'",
    ]


@dataclass(frozen=True)
class Picky(FeedForward):
    """Fits no model, for a reason or by mistake."""

    name = "picky"
    mistaken: bool = False

    def check(self, model):
        raise TypeError("unfinished") if self.mistaken else ConfigError("picky: fits no model")


@dataclass(frozen=True)
class Unfinished(Norm):
    """Is accepted by every config, and has no parameters."""

    name = "unfinished"

    def parameters(self, d_model):
        raise TypeError("unfinished")

    def __call__(self, x_BLD, params):
        return jnp.tanh(x_BLD)


def test_a_refusal_is_a_config_error():
    choices = {"feed_forward": Picky()}
    assert refusals(choices) == dict.fromkeys(("decoder", "encoder"), "picky: fits no model")
    assert refusal(choices) == "picky: fits no model"
    checked = check_choices(choices)
    assert set(checked.refused) == {"decoder", "encoder", "cross"}
    assert checked.passed == checked.failed == []


def test_a_value_that_no_model_takes_does_not_pass():
    with pytest.raises(AssertionError, match=r"^picky: no model takes it: picky: fits no model$"):
        check_variant(Picky())


@pytest.mark.parametrize(
    "choices", [{"feed_forward": Picky(mistaken=True)}, {"norm": Unfinished()}], ids=["picky", "norm"]
)
def test_a_crash_is_none(choices):
    """Not when a config is made, and not when a model is built."""
    with pytest.raises(TypeError, match="unfinished"):
        check_choices(choices)


def test_a_pair_that_crashes_is_not_left_out():
    with pytest.raises(TypeError, match="unfinished"):
        refusal({"feed_forward": Picky(mistaken=True)})


@dataclass(frozen=True)
class Outer(Recurrence):
    """Its state is a sum of outer products, made token by token."""

    name = "outer"

    def state(self, model):
        return {"sum": (model.d_model, model.d_model)}

    def parameters(self, model):
        return {"value": Parameter((model.d_model, model.d_model), model.initializer)}

    def inputs(self, x_BLD, mixed_BLX, params):
        return x_BLD.astype(jnp.float32), dense(x_BLD, params["value"], jnp.float32)

    def step(self, state, inputs):
        key_BD, value_BD = inputs
        sum_BDD = state["sum"] + jnp.einsum("bk,bd->bkd", key_BD, value_BD)
        return {"sum": sum_BDD}, jnp.einsum("bk,bkd->bd", key_BD, sum_BDD)


def test_products_of_a_step_are_counted(monkeypatch):
    """An outer product sums over no axis, and what a loop repeats stands in the program once."""
    subject = Subject(small(mixer=Outer()))
    twins.counted(subject)
    monkeypatch.setattr(twins, "forward_flops", lambda config: forward_flops(config) + 2)
    with pytest.raises(AssertionError, match="operations are counted"):
        twins.counted(subject)


def test_a_class_that_is_no_dataclass_is_named():
    class Plain(Activation):
        def __call__(self, x):
            return x

    with pytest.raises(ConfigError, match=r"Plain is no dataclass; write @dataclass\(frozen=True\) above"):
        check_variant(Plain())


def test_parameters_are_described():
    @dataclass(frozen=True)
    class Pairs(Norm):
        def parameters(self, d_model):
            return {"gain": (d_model,)}

        def __call__(self, x, params):
            return x

    with pytest.raises(AssertionError, match=r"parameters: 'gain' is a tuple, not Parameter\(shape, initializer\)"):
        check_variant(Pairs())


@dataclass(frozen=True)
class Fade(ScoreMod):
    """Wrong: it reads positions and does not say so."""

    def __call__(self, scores, queries, keys, params):
        distance_BLS = queries.positions[:, :, None] - keys.positions[:, None, :]
        return scores - 0.1 * jnp.abs(distance_BLS)[:, None].astype(jnp.float32)


def test_a_function_of_scores_that_reads_positions_says_so():
    with pytest.raises(AssertionError, match="fade reads positions, and positional is False"):
        twins.unplaced(Subject(small(**{"mixer.score_mod": Fade()})))
    twins.unplaced(Subject(small(**{"mixer.score_mod": SoftCap()})))
    with pytest.raises(comparing.DoesNotApply):
        twins.unplaced(Subject(small(**{"mixer.score_mod": SSMax()})))
