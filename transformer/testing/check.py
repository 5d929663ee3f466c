"""Checks a choice in every context."""

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transformer.core.checks import check_kind
from transformer.core.errors import ConfigError
from transformer.core.sources import PACKAGE
from transformer.core.values import Variant
from transformer.data.tasks.task import AlgorithmicTask
from transformer.inference.processors import Processor
from transformer.inference.strategies import Strategy
from transformer.models.encoder_decoder import EncoderDecoderConfig
from transformer.models.pooling import Pooling
from transformer.objectives.objective import Objective
from transformer.runs.rules import UpdateRule
from transformer.runs.schedules import Schedule
from transformer.study.probes import Probe
from transformer.testing import comparing, properties, twins
from transformer.testing.decoding import PROCESSOR, STRATEGY
from transformer.testing.encoder_decoder import translates
from transformer.testing.objectives import OBJECTIVE, POOLING, task_of, task_with
from transformer.testing.optimization import RULE, SCHEDULE
from transformer.testing.options import chosen
from transformer.testing.probes import PROBE
from transformer.testing.subject import Subject, small
from transformer.testing.tasks import TASK


@dataclass
class Checked:
    """The results of checking some choices: what passed, what was refused, and what failed."""

    choices: Mapping[str, Any]
    passed: list[str] = field(default_factory=list)
    """Context and property, without properties that do not apply."""
    refused: dict[str, str] = field(default_factory=dict)
    """Reason, by context."""
    failed: list[str] = field(default_factory=list)
    """Context, property and reason."""

    def run(self, context: str, name: str, check) -> None:
        try:
            check()
        except comparing.DoesNotApply:
            return
        except AssertionError as error:
            self.failed.append(f"{context}, {name}: {error}")
        except Exception as error:  # a choice that cannot run has failed, and the others are still checked
            self.failed.append(f"{context}, {name}: {type(error).__name__}: {_said(error)}")
        else:
            self.passed.append(f"{context}, {name}")


def _said(error: Exception) -> str:
    """The first line of an error, with the next one where the first only announces it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])


class Checks(NamedTuple):
    """How the values of a family are checked."""

    context: str
    wanted: Sequence[Callable[[Any], None]]
    subject: Callable[[Any, Mapping[str, Any]], Any] | None = None
    """What the properties are those of: a model with the value and further choices; None: the value alone."""


CHECKS: Mapping[type[Variant], Checks] = {
    UpdateRule: Checks("rule", RULE),
    Schedule: Checks("schedule", SCHEDULE),
    Objective: Checks("objective", OBJECTIVE, task_of),
    Pooling: Checks("pooling", POOLING, task_with),
    Processor: Checks("processor", PROCESSOR),
    Strategy: Checks("strategy", STRATEGY),
    AlgorithmicTask: Checks("task", TASK),
    Probe: Checks("probe", PROBE),
}
"""Those that are no choice of a language model."""


def check_variant(value: Variant, **choices: Any) -> Checked:
    """Use a variant in tiny models and check the properties that have to hold there.

    The models are a causal decoder, an encoder and an encoder-decoder; they are scanned, rounded, replicated,
    cached, branched, padded and packed: see `transformer.testing.properties` and `twins`. An update rule, a schedule,
    an objective, a pooling, a strategy of decoding or a processor of logits, a task and a probe have properties of
    their own (`optimization`, `objectives`, `decoding`, `tasks` and `probes` beside it).

    Args:
      value: any variant that a model's config has a field for, or one of those, shipped or your own.
      choices: further fields of the model's config.

    Raises:
      AssertionError: the list of properties that do not hold, or why no model takes it.
    """
    check_kind(value, Variant, "check_variant")
    if "__dataclass_fields__" not in vars(type(value)):
        raise ConfigError(
            f"check_variant: {type(value).__name__} is no dataclass; write @dataclass(frozen=True) above it"
        )
    _check_names(value)
    if (own := CHECKS.get(value.family())) is None:
        checked = check_choices(chosen(value) | choices)
        if not (checked.passed or checked.failed):
            raise AssertionError(f"{value}: no model takes it: {next(iter(checked.refused.values()))}")
    else:
        if own.subject is None and choices:
            raise ConfigError(f"check_variant: {next(iter(choices))}: {value} is checked without a model that has it")
        checked, subject = Checked(choices), value if own.subject is None else own.subject(value, choices)
        for check in own.wanted:
            checked.run(own.context, check.__name__, lambda check=check: check(subject))
    checked.run("text", "described", lambda: properties.described(value))
    if checked.failed:
        raise AssertionError(f"{value}: " + "; ".join(_by_reason(checked.failed)))
    return checked


def _check_names(value: Variant) -> None:
    """Raise `ConfigError` where a class of one's own has nearly a name of its base, which nothing would ask it for."""
    cls = type(value)
    if cls.__module__.partition(".")[0] == PACKAGE:
        return
    asked = {name: own for base in cls.__mro__[1:] for name, own in vars(base).items() if not name.startswith("_")}
    known = [name for name, own in asked.items() if callable(own) or isinstance(own, property)]
    for name in vars(cls).keys() - asked.keys() - {own.name for own in dataclasses.fields(value)}:
        near = [one for one in known if name in (f"{one}s", f"{one}es") or one in (f"{name}s", f"{name}es")]
        near = near or difflib.get_close_matches(name, known, 1, 0.9)
        if near and not name.startswith("_"):
            hint = f"did you mean {near[0]!r}? A helper begins with _"
            raise ConfigError(f"check_variant: nothing asks {cls.__name__} for {name!r}; {hint}")


def _by_reason(failed: Sequence[str]) -> list[str]:
    """Failures with one reason as one, at the first place where it was met."""
    places: dict[str, list[str]] = {}
    for failure in failed:
        place, _, reason = failure.partition(": ")
        places.setdefault(reason, []).append(place)
    return [
        f"{first}{f' and {len(others)} more' if others else ''}: {reason}"
        for reason, (first, *others) in places.items()
    ]


def check_choices(choices: Mapping[str, Any]) -> Checked:
    """Check a model with some fields changed in all contexts; the caller reads `failed`."""
    checked = Checked(choices)
    once = twins.TWINS
    for context, wanted in (("decoder", properties.DECODER), ("encoder", properties.ENCODER)):
        try:
            subject = Subject(small(**{"causal": context == "decoder", **choices}))
        except ConfigError as error:
            checked.refused[context] = str(error)
            continue
        for check in (*wanted, *once):
            checked.run(context, check.__name__, lambda check=check, subject=subject: check(subject))
        once = ()
    try:
        config = small(EncoderDecoderConfig, **choices)
    except ConfigError as error:
        checked.refused["cross"] = str(error)
    else:
        assert isinstance(config, EncoderDecoderConfig)
        checked.run("cross", "translates", lambda: translates(config))
    return checked


def check_combination(choices: Mapping[str, Any]) -> Checked:
    """Check a combination of choices: run forward and backward, train a little, decode, and test causality."""
    checked = Checked(choices)
    causal = "decoder" not in refusals(choices)
    subject = Subject(small(**{"causal": causal, **choices}))
    wanted = properties.COMBINATION if causal else (properties.finite, properties.alive)
    for check in wanted:
        checked.run("decoder" if causal else "encoder", check.__name__, lambda check=check: check(subject))
    return checked


def refusals(choices: Mapping[str, Any]) -> dict[str, str]:
    """Why a config with these choices is refused, by context."""
    reasons = {}
    for context in ("decoder", "encoder"):
        try:
            small(**{"causal": context == "decoder", **choices})
        except ConfigError as error:
            reasons[context] = str(error)
    return reasons
