"""Designs beyond arms against a baseline: what each of several choices contributes, alone, last, and together.

A *factor* is a choice that is made or not: changes to a config, under a name.

    factors = between(gpt2, llama)                        # what differs, by dotted path
    design = leave_one_out(factors)
    Study("from GPT-2 to Llama", gpt2, **vars(design))
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transformer.core.checks import check_kind, check_type
from transformer.core.errors import ConfigError
from transformer.data.dataset import Dataset
from transformer.runs.config import RunConfig
from transformer.study.budget import cost

Factors = Mapping[str, Mapping[str, Any]]
"""Changes by the name of the factor."""


@dataclass(frozen=True)
class Design:
    """Arms, and the questions that are asked of them."""

    arms: dict[str, dict[str, Any]]
    baseline: str
    contrasts: dict[str, dict[str, float]] = field(default_factory=dict)
    """Weights of arms by question; empty: each arm against the baseline."""


def between(old: RunConfig, new: RunConfig) -> dict[str, dict[str, Any]]:
    """One factor for each difference of two runs, named by its dotted path; learning rates are not compared.

    Where a value of another kind stands at a path, the whole value is the change; else its fields are compared.
    """
    for run in (old, new):
        check_kind(run, RunConfig, "between")
    found = dict(_differences(old, new, ""))
    found.pop("optimizer.learning_rate", None)
    return {path.rpartition("model.")[2]: {path: value} for path, value in found.items()}


def _differences(old: Any, new: Any, path: str):
    if old == new:
        return
    if type(old) is not type(new) or not dataclasses.is_dataclass(old) or not dataclasses.fields(old):
        yield path, new
        return
    for own in dataclasses.fields(old):
        yield from _differences(getattr(old, own.name), getattr(new, own.name), f"{path}.{own.name}".lstrip("."))


def add_one_in(factors: Factors) -> Design:
    """The base, each factor alone, and all of them: what a choice gives where no other is made.

    Raises:
      ConfigError: fewer than two factors, or two that change the same path.
    """
    _check_factors(factors, "add_one_in")
    alone = {f"+ {name}": dict(changes) for name, changes in factors.items()}
    return Design({"base": {}, **alone, "all": _merged(factors)}, "base")


def leave_one_out(factors: Factors) -> Design:
    """All factors, all but each of them, and none: what a choice gives where all others are made.

    Raises:
      ConfigError: fewer than two factors, or two that change the same path.
    """
    _check_factors(factors, "leave_one_out")
    all_but = {f"− {name}": _merged({k: v for k, v in factors.items() if k != name}) for name in factors}
    return Design({"all": _merged(factors), **all_but, "base": {}}, "all")


def factorial(factors: Factors) -> Design:
    """Every combination of factors (2ᵏ arms); asked are all main effects and all interactions of two factors.

    A main effect is the mean difference that a factor makes, over all settings of the others. An interaction is how
    much larger the effect of one factor is with the other than without it (Box, Hunter and Hunter 2005, chapter 5;
    there half of that).

    Raises:
      ConfigError: fewer than two factors, or more than six.
    """
    _check_factors(factors)
    if not 2 <= len(factors) <= 6:
        raise ConfigError(f"factorial: {len(factors)} factors; two to six make at most 64 arms")
    names = list(factors)
    settings = list(itertools.product((False, True), repeat=len(names)))
    label = {s: " + ".join(n for n, on in zip(names, s, strict=True) if on) or "base" for s in settings}
    if twice := [name for name in label.values() if list(label.values()).count(name) > 1]:
        raise ConfigError(f"factorial: two combinations would be called {twice[0]!r}; give a factor another name")
    arms = {label[s]: _merged({n: factors[n] for n, on in zip(names, s, strict=True) if on}) for s in settings}
    half = len(settings) / 2

    def weights(of: tuple[int, ...], scale: float) -> dict[str, float]:
        """The product of the signs of some factors in each arm."""
        signs = {s: (-1) ** sum(not s[i] for i in of) for s in settings}
        return {label[s]: sign / scale for s, sign in signs.items()}

    contrasts = {f"main effect: {name}": weights((i,), half) for i, name in enumerate(names)}
    for i, j in itertools.combinations(range(len(names)), 2):
        contrasts[f"interaction: {names[i]} × {names[j]}"] = weights((i, j), half / 2)
    return Design(arms, "base", contrasts)


def _check_factors(factors: Any, several: str = "") -> None:
    """Raise `ConfigError` where they are no changes by the name of a factor, or too few for the design `several`."""
    example = "{'rms': {'model.norm': RMSNorm()}, 'alibi': {'model.position': ALiBi()}}"
    if not isinstance(factors, Mapping):
        raise ConfigError(f"factors: a dict is needed, such as {example}, and {type(factors).__name__} is given")
    if wrong := [name for name, changes in factors.items() if not isinstance(changes, Mapping)]:
        given = type(factors[wrong[0]]).__name__
        raise ConfigError(f"factor {wrong[0]}: {given} is given; its changes are a dict, as in {example}")
    if several and len(factors) < 2:
        raise ConfigError(
            f"{several}: {len(factors)} factor{'s' * (not factors)}; of fewer than two, arms are the same"
        )


def _merged(factors: Factors) -> dict[str, Any]:
    """The changes of several factors in one.

    Raises:
      ConfigError: two of them change the same path, or one path lies inside another.
    """
    merged: dict[str, Any] = {}
    for name, changes in factors.items():
        for path, value in changes.items():
            clash = [p for p in merged if p == path or p.startswith(f"{path}.") or path.startswith(f"{p}.")]
            if clash:
                raise ConfigError(f"factor {name}: it changes {path}, and another factor changes {clash[0]}")
            merged[path] = value
    return merged


@dataclass(frozen=True)
class Ladder:
    """Every arm at several sizes: arms `name @ size`, each compared with the baseline of its size.

    `transformer.study.scaling` fits a power law to each arm's losses.
    """

    arms: Factors
    sizes: Factors
    """Changes of each size by its name, ascending."""

    def __post_init__(self):
        for given in (self.arms, self.sizes):
            _check_factors(given)
        if not self.arms or not self.sizes:
            raise ConfigError(f"ladder: {len(self.arms)} arms at {len(self.sizes)} sizes; it needs one of each")
        names = [self.name(arm, size) for size in self.sizes for arm in self.arms]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ConfigError(f"ladder: two arms would be called {twice[0]!r}; give an arm or a size another name")

    def name(self, arm: str, size: str) -> str:
        """The arm of a size."""
        return f"{arm} @ {size}"

    @property
    def design(self) -> Design:
        """The arms of all sizes, with a question for each arm and size."""
        baseline, *others = self.arms
        arms = {
            self.name(name, size): _merged({f"arm {name}": changes, f"size {size}": grown})
            for size, grown in self.sizes.items()
            for name, changes in self.arms.items()
        }
        contrasts = {
            self.name(name, size): {self.name(name, size): 1.0, self.name(baseline, size): -1.0}
            for size in self.sizes
            for name in others
        }
        return Design(arms, self.name(baseline, next(iter(self.sizes))), contrasts)


@dataclass(frozen=True)
class IsoFlop:
    """Every size trained with the same number of operations, for several such numbers: who is best at each?"""

    base: RunConfig
    """Complete, so that operations can be counted."""
    sizes: Factors
    """Changes of each size by its name, ascending."""
    budgets: tuple[float, ...]
    """Floating-point operations of all matrix products in training, ascending."""
    data: Dataset | None = None
    """Whose batches are counted; None: sequences of full length."""

    def __post_init__(self):
        check_kind(self.base, RunConfig, "isoflop: base")
        _check_factors(self.sizes)
        check_type(self.budgets, tuple[float, ...], "isoflop.budgets")
        if wrong := [budget for budget in self.budgets if not 0 < budget < math.inf]:
            raise ConfigError(f"isoflop.budgets: {wrong[0]} is not a positive number")
        length = self.base.data.example_length
        if self.data is None and length not in (None, self.base.model.max_length):
            raise ConfigError(f"isoflop.data: examples have {length} tokens, not max_length; give data=load_data(…)")
        names = [self.name("", budget) for budget in self.budgets]
        if twice := [budget for budget, name in zip(self.budgets, names, strict=True) if names.count(name) > 1]:
            raise ConfigError(
                f"isoflop.budgets: {' and '.join(map(str, twice))} have the same two digits, and one name"
            )

    def name(self, size: str, budget: float) -> str:
        """The arm of a size at a budget."""
        return f"{size} @ {budget:.2g} FLOP"

    @property
    def design(self) -> Design:
        """An arm for each size and budget, whose steps make up the budget; each is compared with its budget's first.

        Raises:
          ConfigError: a budget is less than a step.
        """
        if not self.sizes or not self.budgets:
            raise ConfigError(f"isoflop: {len(self.sizes)} sizes at {len(self.budgets)} budgets; it needs one of each")
        arms, contrasts = {}, {}
        for budget in self.budgets:
            first = self.name(next(iter(self.sizes)), budget)
            for size, grown in self.sizes.items():
                steps = round(budget / cost(self.base.replace({**grown, "steps": 1}), "flops", self.data))
                if steps < 1:
                    raise ConfigError(f"isoflop: {budget:.2g} operations are less than a step of {size}")
                name = self.name(size, budget)
                arms[name] = {**grown, "steps": steps}
                contrasts |= {name: {name: 1.0, first: -1.0}} if name != first else {}
        return Design(arms, next(iter(arms)), contrasts)
