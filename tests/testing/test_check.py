"""What counts as passed, as refused and as failed."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import transformer as T
from transformer.activations.activation import Activation
from transformer.analysis.counts import forward_flops
from transformer.core.arrays import dense
from transformer.core.errors import ConfigError
from transformer.core.parameters import Parameter
from transformer.data.tokenizers import SymbolTokenizer
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.attention.base import ScoreMod
from transformer.mixers.attention.score_mods import SoftCap, SSMax
from transformer.mixers.recurrent.recurrence import Recurrence
from transformer.norms.norm import Norm
from transformer.testing import comparing, twins
from transformer.testing.check import Checked, check_choices, check_variant, refusals
from transformer.testing.comparing import applies
from transformer.testing.covering import refusal
from transformer.testing.subject import Subject, small, tokens_of


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


@dataclass(frozen=True)
class Thinned(T.Sparsity):
    """Says its mask by another name, so that nothing is masked."""

    def masks(self):
        return T.Window(2)


@dataclass(frozen=True)
class Doubled(T.NextToken):
    """Says its losses by another name."""

    def loss(self, logits_BLV, labels_BL):
        return 2 * super().losses(logits_BLV, labels_BL)


@dataclass(frozen=True)
class Misspelt(T.Position):
    """Adds nothing to what is embedded."""

    def to_embeding(self, x_BLD, positions_BL, params):
        return x_BLD + 1.0


NAMES = [(Thinned(), "masks", "mask"), (Doubled(), "loss", "losses"), (Misspelt(), "to_embeding", "to_embedding")]


@pytest.mark.parametrize(("value", "name", "meant"), NAMES)
def test_a_name_that_nothing_asks_for_is_named(value, name, meant):
    """An arm of a study would be its baseline."""
    line = rf"^check_variant: nothing asks {type(value).__name__} for '{name}'; did you mean '{meant}'\? A helper"
    with pytest.raises(ConfigError, match=line):
        check_variant(value)


def test_where_the_norms_of_a_residual_sit_is_known():
    for norms in ("input", ("inputs",)):
        with pytest.raises(ConfigError, match=r"^Own\.norms: .* is not a tuple of some of input, branch, output$"):
            type("Own", (T.SingleStream,), {"norms": norms})


def test_mistakes_of_ones_own_classes_are_one_line():
    @dataclass(frozen=True)
    class Layout(T.BlockLayout):
        connections = ((T.Sublayer("feedforward"),),)

    with pytest.raises(
        ConfigError, match=r"^block: a model has no sublayer 'feedforward'; did you mean 'feed_forward'\?$"
    ):
        small(block=Layout())
    Layout.connections = ("mixer",)
    with pytest.raises(ConfigError, match=r"^block: a part of a connection: Sublayer is needed, and 'm' is given"):
        small(block=Layout())
    with pytest.raises(ConfigError, match=r"^Parameter: 1\.0 is no initializer, such as Constant\(1\.0\)$"):
        T.Parameter((3,), 1.0)
    with pytest.raises(ConfigError, match=r"^Parameter: the initializer is a class; Normal\(\) is a value of it$"):
        T.Parameter((3,), T.Normal)  # pyright: ignore[reportArgumentType] wrong on purpose
    with pytest.raises(ConfigError, match=r"^Parameter: shape 16 is no tuple, such as \(16,\)$"):
        T.Parameter(16)  # pyright: ignore[reportArgumentType] wrong on purpose

    class NoDataclass(T.RMSNorm):
        power: float = 2.0

    with pytest.raises(ConfigError, match=r"^NoDataclass is no dataclass; write @dataclass\(frozen=True\) above it$"):
        NoDataclass(power=3.0)

    @dataclass(frozen=True)
    class Table(T.Activation):
        numbers: Any = None

        def __call__(self, x):
            return x

    with pytest.raises(ConfigError, match=r"^table\.numbers: array\(\[1\., 1\.\]\) is an array; give a tuple$"):
        small(**{"feed_forward.activation": Table(np.ones(2))})

    class Layer(nnx.Module):
        def __call__(self, x_BLD, *, context, key=None):
            return x_BLD

    @dataclass(frozen=True)
    class Same(T.FeedForward):
        def build(self, model, *, key):
            return Layer()

    with pytest.raises(ConfigError, match=r"^blocks\.\*\.feed_forward: the module of .* does not return \(the out"):
        T.LanguageModel(small(feed_forward=Same()), key=jax.random.key(0))(tokens_of(2))

    @dataclass(frozen=True)
    class Row(T.RowTask):
        symbols = ("a",)
        length = 3

        def row(self, draw):
            return ["a", "a"]

    with pytest.raises(ConfigError, match=r"^row: row gives list, not \(symbols, which of them are answers\)$"):
        Row().examples(np.random.default_rng(0), 2)
    with pytest.raises(ConfigError, match=r"^tokenizer: symbol 3 is no text$"):
        SymbolTokenizer((3,))
