import functools
import importlib
import inspect
import subprocess
import sys
import typing

import pytest

import transformer as T
from transformer.names import DAY, NAMES, places
from transformer.testing.stubs import stubs


def test_every_name_is_where_the_table_says():
    for module, names in NAMES.items():
        for name in names.split():
            assert getattr(importlib.import_module(f"transformer.{module}"), name) is getattr(T, name)


def test_a_name_is_in_one_place():
    assert len(places()) == sum(len(names.split()) for names in NAMES.values())


def test_stubs_are_those_of_the_table():
    for path, text in stubs().items():
        assert path.read_text() == text, f"{path} is stale: python -m transformer.testing.stubs"


def test_rooms_are_namespaces():
    assert T.norms.RMSNorm is T.RMSNorm
    assert T.mixers.attention.SlidingWindow is T.SlidingWindow
    assert {"LayerNorm", "RMSNorm"} <= set(dir(T.norms))
    assert {"attention", "recurrent", "Attention", "HGRN"} <= set(dir(T.mixers))
    with pytest.raises(AttributeError, match=r"'transformer.norms' has no attribute 'RoPE'"):
        _ = T.norms.RoPE


def test_dir_shows_the_names_of_a_day_and_the_rooms():
    shown = dir(T)
    assert set(DAY.split()) <= places().keys()
    assert {*DAY.split(), "norms", "mixers", "positions"} <= set(shown)
    assert len(shown) < 110
    with pytest.raises(AttributeError, match="no attribute 'RMSNrom'; did you mean 'RMSNorm'\\?"):
        _ = T.RMSNrom
    with pytest.raises(AttributeError, match=r"'swiglu'; here it is the Activation glu\(gate=silu\) in text form$"):
        _ = T.swiglu
    with pytest.raises(AttributeError, match=r"'NoPE'; here it is the Position none in text form$"):  # and not RoPE
        _ = T.NoPE
    with pytest.raises(AttributeError, match=r"'load_model'; did you mean 'load_run'\?$"):
        _ = T.load_model
    with pytest.raises(AttributeError, match=r"'Trainer'; did you mean 'train'\?$"):
        _ = T.Trainer
    with pytest.raises(AttributeError, match="no attribute 'Gelu'; did you mean 'GELU'\\?"):
        _ = T.Gelu


def test_importing_the_package_loads_nothing_else():
    others = "'jax', 'flax', 'matplotlib', 'grain'"
    code = f"import sys, transformer; print([name for name in ({others}) if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def called_with_texts(value):
    """A call of a function or class with "tiny" as each config of a model or run; None where it takes none."""
    call = value.__init__ if inspect.isclass(value) else value
    types, kinds = typing.get_type_hints(call), (T.ModelConfig, T.RunConfig)
    configs = {name for name, kind in types.items() if inspect.isclass(kind) and issubclass(kind, kinds)} - {"return"}
    arguments = [one for one in inspect.signature(call).parameters.values() if one.name != "self"]
    given = [one for one in arguments if one.default is one.empty or one.name in configs]
    named = {one.name: "tiny" if one.name in configs else None for one in given}
    first = [named.pop(one.name) for one in given if one.kind is one.POSITIONAL_OR_KEYWORD]
    return functools.partial(value, *first, **named) if configs else None


RESULTS = {"Outcome", "StoredRun"}
"""What training returns, which nobody makes by hand."""


def test_whatever_takes_a_config_says_of_a_text_that_it_is_none():
    asked = set()
    for name in sorted(places().keys() - RESULTS):
        value = getattr(T, name)
        if callable(value) and (call := called_with_texts(value)):
            asked.add(name)
            with pytest.raises(T.ConfigError, match="'tiny'") as caught:
                call()
            assert "\n" not in str(caught.value), name
    assert {"build", "pure_model", "LanguageModel", "parameter_count", "mup", "train", "Study", "RunConfig"} <= asked
