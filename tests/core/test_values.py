"""Variants: text and JSON forms that come back as the same value, families by name, and values out of range."""

import dataclasses
import functools
import inspect
import json
import linecache
import re
import typing
from dataclasses import dataclass

import numpy as np
import pytest

from transformer.activations.activation import GELU, GLU, Activation, SiLU
from transformer.core.checks import check_kind, variant_of
from transformer.core.errors import ConfigError
from transformer.core.files import Damaged, WriteError
from transformer.core.json import from_json, to_json
from transformer.core.parameters import Constant, Initializer
from transformer.core.values import Variant, to_text
from transformer.data.arrays import arrays
from transformer.data.dataset import load_data
from transformer.data.labelled import ClassificationRun
from transformer.data.pairs import PairsConfig
from transformer.data.pictures import ImagePairConfig
from transformer.data.tasks.task import AlgorithmicTask
from transformer.feed_forwards.experts import TopKExperts
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.inference.processors import Processor
from transformer.inference.strategies import Strategy
from transformer.mixers.attention.attention import Attention
from transformer.mixers.attention.base import Backend, Merge, Projection, Scale, Sparsity
from transformer.mixers.mixer import Mixer
from transformer.mixers.recurrent.delta import GatedDeltaNet
from transformer.mixers.recurrent.linear_attention import LinearAttention
from transformer.models.config import ModelConfig
from transformer.models.downsampling import Downsampling, Hourglass
from transformer.models.pattern import Alternate
from transformer.models.pooling import Pooling
from transformer.models.stack import Layers
from transformer.norms.norm import LayerNorm, Norm, RMSNorm
from transformer.objectives.objective import NextToken, Objective
from transformer.objectives.tokens import MultiToken
from transformer.positions.position import Position
from transformer.positions.rotary import LinearScaling, RoPE, RoPEScaling, XPos, YaRN
from transformer.residuals.residual import PostNorm, Residual, SingleStream
from transformer.runs.config import RunConfig, grid
from transformer.runs.data import TextConfig
from transformer.runs.muon import Orthogonalization, PolarExpress
from transformer.runs.optimizer import OptimizerConfig
from transformer.runs.rules import Adafactor, AdamW, UpdateRule
from transformer.runs.schedules import Schedule
from transformer.runs.tokenizers import Tokenization
from transformer.study.running import StudyError
from transformer.testing.options import FACTORS
from transformer.training.checkpoint import CheckpointError
from transformer.training.signals import Interrupted

# Those of studies need arguments, as an alternation does, and are there only where a test has imported them.
SHIPPED = [
    cls
    for family in Variant.__subclasses__()
    for cls in family.variants().values()
    if cls.__module__.startswith("transformer.") and not cls.__module__.startswith("transformer.study.")
    if cls is not Alternate
]


def another(kind, value):
    """A value of a field's type that is not `value`."""
    if isinstance(value, Variant):
        others = {
            Activation: GELU(tanh=True),
            Norm: RMSNorm(eps=0.5),
            Initializer: Constant(2.0),
            RoPEScaling: LinearScaling(3.0),
            Position: RoPE(),
            Residual: PostNorm(),
            Downsampling: Hourglass(),
            UpdateRule: AdamW(beta1=0.5),
            Mixer: GatedDeltaNet(negative_eigenvalues=True),
            Orthogonalization: PolarExpress(),
        }
        return others[type(value).family()]
    if kind is str:
        return value + "x"
    if isinstance(value, bool):
        return not value
    if isinstance(value, tuple):
        item = typing.get_args(kind)[0]
        if isinstance(item, type) and issubclass(item, Variant):
            return tuple(option() for option in list(item.variants().values())[:2])
        if typing.get_origin(item) is typing.Literal:
            return typing.get_args(item)[:2]
        return {int: (7,), float: (0.5,)}.get(item, (None, "data"))
    if typing.get_origin(kind) is typing.Literal:
        return next(option for option in typing.get_args(kind) if option != value)
    if value is None and (family := variant_of(kind)) is not None:
        return next(iter(family.variants().values()))()
    if value is None and any(typing.get_origin(one) is tuple for one in typing.get_args(kind)):
        return (7,)
    if value is None:
        return 0.5 if float in typing.get_args(kind) else 13
    return value + 1 if isinstance(value, int) else value / 2 + 0.125


WITHOUT_USE = {(LinearAttention, "eps")}
"""Fields that a class inherits and refuses to have another value of."""


def changed(cls):
    """The variant with every field away from its default."""
    types, default = typing.get_type_hints(cls), cls()
    names = [f.name for f in dataclasses.fields(cls) if (cls, f.name) not in WITHOUT_USE]
    return cls(**{name: another(types[name], getattr(default, name)) for name in names})


@pytest.mark.parametrize("cls", SHIPPED, ids=lambda cls: f"{cls.family().__name__}-{cls.name}")
def test_round_trips(cls):
    """Default and changed values come back equal from their text and from their JSON."""
    family = cls.family()
    assert issubclass(cls, family)
    for value in (cls(), changed(cls)):
        assert family.parse(str(value)) == value
        assert from_json(family, json.loads(json.dumps(to_json(value)))) == value
        assert hash(family.parse(str(value))) == hash(value)
    assert str(cls()) == cls.name
    if dataclasses.fields(cls):
        assert changed(cls) != cls()


def test_every_family_has_its_variants():
    """The shipped variants by name: a renamed or lost one changes what old files mean."""
    names = {family: set() for family in Variant.__subclasses__()}
    for cls in SHIPPED:
        names[cls.family()].add(cls.name)
    assert names[Norm] >= {"layernorm", "sequence_layernorm", "rmsnorm"}
    assert names[Position] >= {
        "sinusoidal",
        "sinusoidal_2d",
        "query_key_sinusoidal",
        "learned",
        "rope",
        "alibi",
    }
    assert names[Residual] >= {"post", "pre", "sandwich", "no_norm"}
    assert names[Activation] >= {"relu", "gelu", "silu", "sigmoid", "linear", "glu"}
    assert names[Schedule] >= {"constant", "linear", "cosine", "inverse_square_root", "wsd"}
    assert names[UpdateRule] >= {"adamw", "sgd", "lion", "adafactor", "muon", "schedule_free"}
    assert names[Layers] >= {"unrolled", "scanned"}
    assert names[Initializer] >= {"normal", "fanin", "xavier", "constant"}
    assert names[Backend] >= {"chunked", "recurrent"}
    assert names[Projection] >= {"tied", "no_projections"}
    assert names[Scale] >= {"inverse", "constant", "learned"}
    assert names[Merge] >= {"concat_only", "sum"}
    assert names[Sparsity] >= {"sliding_window"}
    assert names[Pooling] >= {"mean", "cls", "attention", "per_token"}
    assert names[Tokenization] >= {"char", "byte", "symbols", "word", "bpe", "byte_bpe", "wordpiece"}
    assert names[Objective] >= {
        "next_token",
        "prefix_token",
        "masked_token",
        "sequence_to_sequence",
        "classification",
        "token_classification",
        "reconstruction",
    }
    assert names[Strategy] >= {"greedy", "sample", "beam"}
    assert names[AlgorithmicTask] >= {"addition", "copy", "induction", "listops", "sort"}
    assert names[Processor] >= {"repetition_penalty", "no_repeat", "minimum_length", "forbidden"}


@pytest.mark.parametrize(
    "path",
    [
        "norm",
        "position",
        "downsampling",
        "head.transform",
        "position.scaling",
        "feed_forward",
        *(f"mixer.{name}" for name in ("heads", "projection", "scale", "score_mod", "normalizer", "merge")),
        *(f"mixer.{name}" for name in ("sparsity", "sharing", "backend")),
    ],
)
def test_none_says_that_nothing_is_chosen(path):
    """As a text, as a value, and in JSON; where something has to be chosen it is the name of nothing."""
    config = ModelConfig(position=RoPE())
    nothing = config.replace({path: "none"})
    assert nothing == config.replace({path: None})
    assert functools.reduce(getattr, path.split("."), nothing) is None
    assert from_json(ModelConfig, json.loads(json.dumps(to_json(nothing)))) == nothing
    assert to_text(None) == "none"
    assert Position.parse("rope(scaling=none)") == RoPE()
    with pytest.raises(ConfigError, match="unknown name 'none'"):
        config.replace(residual="none")


def test_a_new_variant_is_known_by_its_name():
    """A class written anywhere is parsed, stored and replaced like the shipped ones; nothing is registered."""

    @dataclass(frozen=True)
    class PowerNormOfTest(Norm):
        power: float
        centred: bool = False

        def __call__(self, x_BLD, params):
            return x_BLD**self.power

    value = Norm.parse("powernormoftest(power=3)")
    assert value == PowerNormOfTest(3.0)
    assert str(value) == "powernormoftest(power=3.0)"
    assert from_json(Norm, to_json(value)) == value
    assert ModelConfig().replace(norm="powernormoftest(2.5, True)").norm == PowerNormOfTest(2.5, True)
    assert PowerNormOfTest.family() is Norm
    with pytest.raises(ConfigError, match="powernormoftest: missing power"):
        Norm.parse("powernormoftest")
    with pytest.raises(ConfigError, match="did you mean 'powernormoftest'"):
        Norm.parse("powernormoftst")


def test_of_two_with_one_name_the_last_counts():
    """Running a notebook cell again, even with another base class, replaces the variant."""
    for base, default in ((Residual, 1), (Residual, 2), (SingleStream, 3)):

        @dataclass(frozen=True)
        class ResidualOfTest(base):
            number: int = default

            def __call__(self, x_BLD, f, norms, params):
                return x_BLD

        assert Residual.parse("residualoftest").number == default


def test_abstract_classes_are_not_variants():
    """Neither a family nor a helper in between can be named."""
    assert "singlestream" not in Residual.variants()
    assert "norm" not in Norm.variants()
    assert "pre" in SingleStream.variants()


def test_variants_are_values():
    """Equal by content, usable as keys, and frozen."""
    assert {RoPE(): 1}[RoPE(base=10_000.0)] == 1
    assert RoPE() != RoPE(base=1.0)
    assert LayerNorm(eps=1e-6, bias=False) != RMSNorm()
    with pytest.raises(dataclasses.FrozenInstanceError):
        RoPE().base = 1.0  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rmsnorm(eps=-1)", "rmsnorm.eps: -1.0 is negative"),
        ("layernorm(eps=-1)", "layernorm.eps: -1.0 is negative"),
    ],
)
def test_numbers_of_norms_out_of_range(text, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        Norm.parse(text)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RoPE(base=0.0), "rope.base: 0.0 is not a positive number"),
        (lambda: RoPE(base=float("nan")), "rope.base: nan is not a positive number"),
        (lambda: XPos(decay_base=0.0), "xpos.decay_base: 0.0 is not a positive number"),
        (lambda: YaRN(slow=4.0, fast=2.0), "yarn.fast: 2.0 turns are not more than slow, 4.0"),
        (lambda: AdamW(eps=-1.0), "adamw.eps: -1.0 is not a positive number"),
        (lambda: Adafactor(clip=0.0), "adafactor.clip: 0.0 is not a positive number"),
        (lambda: TopKExperts(balance=-1.0), "top_k.balance: -1.0 is negative"),
        (lambda: TopKExperts(shared=-1), "top_k.shared: -1 is negative"),
        (lambda: MultiToken(weight=-1.0), "multi_token.weight: -1.0 is negative"),
        (lambda: NextToken(auxiliary=-1.0), "next_token.auxiliary: -1.0 is negative"),
        (lambda: OptimizerConfig(learning_rate=-1.0), "optimizer.learning_rate: -1.0 is negative"),
        (lambda: OptimizerConfig(warmup_steps=-4), "optimizer.warmup_steps: -4 is negative"),
    ],
    ids=range(12),
)
def test_numbers_out_of_range(make, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        make()


MADE = "; ModelConfig() is a value of it"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("tiny", "build: ModelConfig is needed, and 'tiny' is given; preset(name) is the config of that name"),
        (RunConfig(), "build: ModelConfig is needed, and RunConfig is given; its field model is one"),
        (None, "build: ModelConfig is needed, and NoneType is given"),
        (ModelConfig, "build: ModelConfig is needed, and the class ModelConfig is given" + MADE),
        (RMSNorm, "build: ModelConfig is needed, and the class RMSNorm is given"),
    ],
    ids=range(5),
)
def test_what_is_given_in_place_of_a_config(value, message):
    check_kind(ModelConfig(), ModelConfig, "build")
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        check_kind(value, ModelConfig, "build")


def test_a_class_in_place_of_a_value():
    norm: typing.Any = RMSNorm
    with pytest.raises(ConfigError, match=r"^model\.norm: the class RMSNorm is not Norm or none; RMSNorm\(\) is"):
        ModelConfig(norm=norm)
    with pytest.raises(ConfigError, match=r"^model\.position: the class RMSNorm is not Position or none$"):
        ModelConfig(position=norm)
    with pytest.raises(ConfigError, match=r"^x: Norm is needed, and 'rmsnorm' is given; Norm\.parse makes one of"):
        check_kind("rmsnorm", Norm, "x")


A_TEXT: typing.Any = "byte"


@pytest.mark.parametrize(
    ("make", "fields", "message"),
    [
        (ModelConfig, {"num_layer": 2}, "ModelConfig: no field 'num_layer'; did you mean 'num_layers'?"),
        (Attention, {"n_heads": 2}, "Attention: no field 'n_heads'; did you mean 'num_heads'?"),
        (ModelConfig, {"num_heads": 2}, "ModelConfig: no field 'num_heads'; did you mean 'mixer.num_heads'?"),
        (ModelConfig, {"pos": None}, "ModelConfig: no field 'pos'; did you mean 'position'?"),
        (ModelConfig, {"dim": 8}, "ModelConfig: no field 'dim'; did you mean 'd_model'?"),
        (RMSNorm, {"epz": 1.0}, "RMSNorm: no field 'epz'; did you mean 'eps'?"),
        (SiLU, {"beta": 1.0}, "SiLU: no field 'beta'"),
        (Attention, {"head": 2}, "Attention: no field 'head'; did you mean 'heads'?"),
        (RunConfig, {"matmul_precision": "bf16"}, "matmul_precision: unknown value 'bf16'; did you mean 'bfloat16'?"),
        (TextConfig, {"tokenizer": A_TEXT}, "data.tokenizer: 'byte' is not Tokenization"),
        (ClassificationRun, {"model": ModelConfig()}, "model: a ModelConfig is not ClassifierConfig"),
        (grid, {"seeds": 2, "learning_rates": 1e-3}, "learning_rates: 0.001 is no sequence; (0.001,) is one of it"),
    ],
    ids=range(12),
)
def test_what_is_misspelled_or_of_another_type_is_one_short_line(make, fields, message):
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}") as error:
        make(**fields)
    assert len(str(error.value)) < 120


def test_the_fields_are_what_notebooks_show():
    assert [*inspect.signature(Attention).parameters][:2] == ["num_heads", "num_kv_heads"]
    assert inspect.signature(RunConfig).parameters["steps"].default == RunConfig().steps


def test_other_mistakes_in_a_call_are_told_as_python_tells_them():
    make: typing.Any = ModelConfig
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        make(2)


def test_a_sparsity_may_have_fields_that_are_no_numbers():
    @dataclass(frozen=True)
    class Named(Sparsity):
        label: str = "near"
        both: bool = False

    assert str(Named()) == "named"


def test_a_variant_is_a_frozen_dataclass():
    """Otherwise two of them would be equal, and of the same text."""

    class Times(Norm):
        def __call__(self, x_BLD, params):
            return x_BLD

    with pytest.raises(ConfigError, match="Times is not a frozen dataclass"):
        ModelConfig(norm=Times())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RoPE(base="500000"), "rope.base: '500000' is not a positive number"),
        (lambda: ModelConfig(feed_forward=FeedForward(activation=GLU(gate=SiLU))), "glu.gate: .* is not Activation"),  # pyright: ignore[reportArgumentType] wrong on purpose
        (lambda: ModelConfig(norm=LayerNorm(bias="no")), "layernorm.bias: 'no' is not bool"),
    ],
    ids=range(3),
)
def test_types_within_a_variant(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_config_prints_what_differs_from_its_defaults():
    config = RunConfig().replace({"model.norm": "rmsnorm", "model.mixer.num_heads": 8}, steps=7)
    assert str(config) == "RunConfig(model.mixer=attention(num_heads=8), model.norm=rmsnorm, steps=7)"
    assert str(RunConfig(data=PairsConfig(split="length"))) == "RunConfig(data=PairsConfig(split=length))"
    assert str(ImagePairConfig(path="x")) == "ImagePairConfig(path=x)"


def test_data_is_shown_in_a_line(tmp_path):
    (tmp_path / "text.txt").write_text("abacabad" * 40)
    line = f"Corpus({tmp_path}/text.txt: 288 training and 32 held-out tokens, 4 in the vocabulary)"
    assert repr(load_data(TextConfig(path=str(tmp_path / "text.txt")))) == line
    rows = repr(arrays(np.arange(40).reshape(10, 4) % 7))
    assert rows == "Arrays(arrays: 9 training and 1 held-out examples)"


def test_the_name_of_a_shipped_variant_is_taken():
    """Whose text form would mean the other one; a name that another family has is free."""
    line = (
        r"^class .*RMSNorm: transformer\.norms\.norm has a Norm of the name 'rmsnorm'; "
        r"set another one in the class, such as name = 'own_rmsnorm'$"
    )
    with pytest.raises(ConfigError, match=line):
        type("RMSNorm", (Norm,), {"__module__": "elsewhere"})
    made = [
        type("RMSNorm", (base,), {"__module__": "elsewhere"} | more)
        for base, more in ((Norm, {"name": "own"}), (Activation, {}))
    ]
    assert [each.name for each in made] == ["own", "rmsnorm"]
    assert RMSNorm is Norm.variants()["rmsnorm"]


def test_the_repr_is_the_expression_without_defaults():
    attention = Attention(num_heads=2, scale=None)
    assert repr(ModelConfig(d_model=32, mixer=attention)) == "ModelConfig(d_model=32, mixer=Attention(num_heads=2))"
    classes = {sub.__name__: sub for family in Variant.__subclasses__() for sub in family.variants().values()}
    for value in (value for options in FACTORS.values() for changes in options for value in changes.values()):
        assert eval(repr(value), dict(classes)) == value


def test_a_notebook_shows_its_own_line_and_the_error():
    text, name = "ModelConfig(dim=8)", "/ipykernel_1/2.py"
    linecache.cache[name] = (len(text), None, [text], name)  # as a notebook does
    code = compile(text, name, "exec")
    with pytest.raises(ConfigError) as raised:
        exec(code, {"ModelConfig": ModelConfig})
    own, line = raised.value._render_traceback_()
    assert own == "line 1: ModelConfig(dim=8)"
    assert line == "ConfigError: ModelConfig: no field 'dim'; did you mean 'd_model'?"
    raised.value.add_note("In Python: another way")
    assert raised.value._render_traceback_()[-1] == "In Python: another way"


@pytest.mark.parametrize("error", [Damaged, WriteError, CheckpointError, StudyError, Interrupted])
def test_a_notebook_shows_each_error_of_this_library_in_a_line(error):
    assert error("what is wrong")._render_traceback_() == [f"{error.__name__}: what is wrong"]
