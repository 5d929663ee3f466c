"""The text form of a value: what a person types, the shortest form, and errors that help."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.activations.activation import GELU, GLU, Activation, SiLU
from transformer.core.errors import ConfigError
from transformer.core.json import from_json, to_json
from transformer.core.parameters import Constant, Initializer
from transformer.core.synonyms import FORMS
from transformer.core.text import field_from_text
from transformer.core.values import Variant
from transformer.mixers.attention.base import Backend
from transformer.models.stack import Layers, Scanned
from transformer.norms.norm import Norm
from transformer.objectives.objective import NextToken, Objective
from transformer.positions.position import Position
from transformer.positions.relative import ALiBi
from transformer.positions.rotary import RoPE
from transformer.residuals.residual import Residual
from transformer.runs.schedules import Schedule


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
    (Norm, "RMSNorm", "norm: unknown name 'RMSNorm'; did you mean 'rmsnorm'?"),
    (Residual, "PreNorm", "residual: unknown name 'PreNorm'; did you mean 'pre'?"),
    (Position, "zzz", "position: unknown name 'zzz'; known: alibi, contextual, fire, forgetting, "),
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
    (Activation, "glu(gate=sillu)", "glu.gate: unknown name 'sillu'; did you mean 'silu'?"),
    (Activation, "glu(gate='silu')", "is not of the form"),
    (Activation, "SwiGLU", "activation: unknown name 'SwiGLU'; here it is glu(gate=silu)"),
    (Position, "nope", "position: unknown name 'nope'; here it is none"),
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


WORDS = [(family, word, form) for family, forms in FORMS.items() for word, form in forms.items()]


@pytest.mark.parametrize(("family", "word", "form"), WORDS)
def test_what_has_another_name_elsewhere_has_the_form_that_errors_say(family, word, form):
    known = {cls.__name__: cls for cls in Variant.__subclasses__()}[family]
    assert word not in known.variants()
    assert field_from_text(form, known | None, "here") is None or known.parse(form)


@pytest.mark.parametrize(
    ("text", "expected", "value"),
    [
        ("8", int, 8),
        ("none", int | None, None),
        ("a, b", str, "a, b"),
        ("(1, 2)", tuple[int, ...], (1, 2)),
        ("[silu, gelu(tanh=True)]", tuple[Activation, ...], (SiLU(), GELU(tanh=True))),
        ("rope(base=5)", Position | None, RoPE(base=5.0)),
    ],
)
def test_a_field_is_read_from_its_text(text, expected, value):
    assert field_from_text(text, expected, "model.x") == value


@pytest.mark.parametrize("text", ["-" * 50_000 + "1", "(" * 9_000, "[" * 4_000 + "]" * 4_000, "9" * 9_000, "8 heads"])
@pytest.mark.parametrize("expected", [int, float | None, tuple[int, ...]])
def test_a_text_that_is_no_field_is_one_short_line(text, expected):
    with pytest.raises(ConfigError, match=r"^model\.x: .{1,150}$"):
        field_from_text(text, expected, "model.x")
