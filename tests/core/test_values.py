"""Variants: text and JSON forms that come back as the same value, replacing by path, and errors that help."""

import dataclasses
import functools
import json
import re
import typing
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.activations.activation import GELU, GLU, Activation, SiLU
from transformer.core.json import from_json, to_json
from transformer.core.parameters import Constant, Initializer
from transformer.core.values import ConfigError, Variant, to_text, variant_of
from transformer.feed_forwards.experts import TopKExperts
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.inference.processors import Processor
from transformer.inference.strategies import Strategy
from transformer.mixers.attention.base import Backend, Merge, Projection, Scale, Sparsity
from transformer.models.config import ModelConfig
from transformer.models.downsampling import Downsampling, Hourglass
from transformer.models.pattern import Alternate
from transformer.models.pooling import Pooling
from transformer.models.stack import Layers, Scanned
from transformer.norms.norm import LayerNorm, Norm, RMSNorm
from transformer.objectives.objective import NextToken, Objective
from transformer.objectives.tokens import MultiToken
from transformer.positions.position import Position
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import LinearScaling, RoPE, RoPEScaling, XPos, YaRN
from transformer.residuals.residual import PostNorm, Residual, SingleStream
from transformer.runs.config import RunConfig
from transformer.runs.optimizer import OptimizerConfig
from transformer.runs.rules import Adafactor, AdamW, UpdateRule
from transformer.runs.schedules import Schedule
from transformer.runs.tokenizers import Tokenization

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
        return (7,) if item is int else (None, "data")
    if typing.get_origin(kind) is typing.Literal:
        return next(option for option in typing.get_args(kind) if option != value)
    if value is None and (family := variant_of(kind)) is not None:
        return next(iter(family.variants().values()))()
    if value is None:
        return 0.5 if float in typing.get_args(kind) else 13
    return value + 1 if isinstance(value, int) else value / 2 + 0.125


def changed(cls):
    """The variant with every field away from its default."""
    types, default = typing.get_type_hints(cls), cls()
    return cls(**{f.name: another(types[f.name], getattr(default, f.name)) for f in dataclasses.fields(cls)})


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
    assert names[Processor] >= {"repetition_penalty", "no_repeat", "minimum_length", "forbidden"}


@pytest.mark.parametrize(
    ("family", "text", "value"),
    [
        (Position, "rope(base=500000)", RoPE(base=500_000.0)),
        (Position, "  rope( 5e5 , interleaved = True ) ", RoPE(base=500_000.0, interleaved=True)),
        (Position, "rope()", RoPE()),
        (Position, "alibi", ALiBi()),
        (Activation, "glu(gate=silu)", GLU(gate=SiLU())),
        (Activation, "glu(gate=gelu(tanh=True))", GLU(gate=GELU(tanh=True))),
        (Layers, "scanned(remat='dots')", Scanned(remat="dots")),
        (Initializer, "constant(value=-2)", Constant(-2.0)),
        (Objective, "next_token(0.1)", NextToken(0.1)),
    ],
)
def test_text(family, text, value):
    """What a person types is the value it says."""
    parsed = family.parse(text)
    assert parsed == value
    assert [type(v) for v in vars(parsed).values()] == [type(v) for v in vars(value).values()]


@pytest.mark.parametrize(
    "path",
    [
        "norm",
        "position",
        "downsampling",
        "head.transform",
        "position.scaling",
        *(f"mixer.{name}" for name in ("backend", "projection", "scale", "merge", "sparsity", "sharing", "score_mod")),
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


def test_shortest_text():
    """Defaults are left out of the text and kept in the JSON."""
    assert str(RoPE(base=500_000.0)) == "rope(base=500000.0)"
    assert str(GLU(gate=GELU(tanh=True))) == "glu(gate=gelu(tanh=True))"
    assert to_json(Constant()) == {"variant": "constant", "value": 0.0}


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False), st.booleans())
def test_any_number_round_trips(number, flag):
    """Every positive float comes back bit for bit."""
    value = RoPE(base=number, interleaved=flag)
    assert Position.parse(str(value)) == value
    assert from_json(Position, json.loads(json.dumps(to_json(value)))) == value


ERRORS = [
    (Norm, "layernrom", "norm: unknown name 'layernrom'; did you mean 'layernorm'?"),
    (Position, "zzz", "position: unknown name 'zzz'; known: alibi, contextual, fire, forgetting, kerple, learned"),
    (Position, "rope(bse=3)", "position: rope has no field 'bse'; did you mean 'base'?"),
    (Position, "rope(1.0, base=2.0)", "position: rope is given 'base' twice"),
    (Position, "rope(1, 1, True, none, 4)", "position: rope takes 4 values, not 5"),
    (Position, "rope(base='x')", "rope.base: 'x' is not float"),
    (Position, "rope(interleaved=1)", "rope.interleaved: 1 is not bool"),
    (Position, "rope(base=True)", "rope.base: True is not float"),
    (Position, "rope(base=x)", "rope.base: x is not a number, a text in quotes"),
    (Position, "rope(base=__import__('os').getpid())", "is not a number, a text in quotes"),
    (Position, "rope(base=2**3)", "rope.base: 2 ** 3 is not a number, a text in quotes"),
    (Position, "rope(", "position: 'rope(' is not of the form name or name(field=value)"),
    (Position, "", "position: '' is not of the form name or name(field=value)"),
    (Position, "3", "is not of the form"),
    (Position, "a.rope", "is not of the form"),
    (Activation, "glu(gate=sillu)", "activation: unknown name 'sillu'; did you mean 'silu'?"),
    (Activation, "glu(gate='silu')", "is not of the form"),
    (Layers, "scanned(remat='dost')", "scanned.remat: unknown value 'dost'; did you mean 'dots'?"),
    (Position, "rope(base={[]:1})", "rope.base: {[]: 1} is not a number, a text in quotes"),
    (Activation, "glu(gate=glu)", "glu.gate: glu takes 2 branches, a gate takes one"),
    (Backend, "chunked(block=0)", "chunked.block: 0 is not a positive number"),
    (Backend, "recurrent(block=0)", "recurrent.block: 0 is not a positive number"),
    (Backend, "chunked(block=-8)", "chunked.block: -8 is not a positive number"),
    (Schedule, "wsd(decay_fraction=2)", "wsd.decay_fraction: 2.0 is not in (0, 1]"),
]


@pytest.mark.parametrize(("family", "text", "message"), ERRORS, ids=[text for _, text, _ in ERRORS])
def test_text_errors(family, text, message):
    """One line that says what was wrong and the nearest valid name."""
    with pytest.raises(ConfigError) as caught:
        family.parse(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


JSON_ERRORS = [
    (Norm, {"variant": "rmsnrom"}, "config: unknown norm 'rmsnrom'; did you mean 'rmsnorm'?"),
    (Norm, {"variant": "rmsnorm", "epz": 1.0}, "config: unknown field 'epz'; did you mean 'eps'?"),
    (Norm, {"variant": "rmsnorm", "eps": "1"}, "config.eps: '1' is not float"),
    (Norm, {"eps": 1.0}, "is not a variant"),
    (Norm, "rmsnorm", "is not a variant"),
    (RunConfig, {"modle": {}}, "config: unknown field 'modle'; did you mean 'model'?"),
    (
        RunConfig,
        {"model": {"norm": {"variant": "x"}}},
        "config.model.norm: unknown norm 'x'; known: derf, dyt, groupnorm, layernorm",
    ),
    (RunConfig, {"model": {"d_model": "128"}}, "config.model.d_model: '128' is not int"),
    (RunConfig, {"model": 5}, "config.model: 5"),
    (RunConfig, {"model": ["d_model"]}, "config.model: ['d_model']"),
    (Norm, {"variant": 3}, "config: unknown norm 3"),
]


@pytest.mark.parametrize(("cls", "data", "message"), JSON_ERRORS, ids=[str(data) for _, data, _ in JSON_ERRORS])
def test_json_errors(cls, data, message):
    """An unknown name or a wrong type says where in the file it is."""
    with pytest.raises(ConfigError) as caught:
        from_json(cls, data)
    assert message in str(caught.value)


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
        (lambda: AdamW(eps=-1.0), "adamw.eps: -1.0 is negative"),
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
