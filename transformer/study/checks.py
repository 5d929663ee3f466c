"""What makes a study impossible, whatever its arms are."""

import math
import numbers
from collections.abc import Mapping
from typing import TYPE_CHECKING

from transformer.core.checks import check_kind, check_type, hints
from transformer.core.errors import ConfigError, nearest
from transformer.runs.config import RunConfig
from transformer.study.arms import NOISE_SEEDS
from transformer.study.budget import MATCH_BY
from transformer.study.designs import Design
from transformer.study.record import NOISE, noise_name
from transformer.study.runs import SUMS

if TYPE_CHECKING:
    from transformer.study.study import Study


def check_study(study: "Study") -> None:
    """Raise `ConfigError` where a field has another type, or fields contradict each other."""
    where, types = f"study {study.name}", hints(type(study))
    check_kind(study.base, RunConfig, f"{where}: base")
    for name in types.keys() - {"base", "arms", "contrasts", "_"}:
        check_type(getattr(study, name), types[name], f"{where}: {name}")
    _check_arms(study, where)
    _check_contrasts(study, where)
    _check_budget(study, where)
    _check_metrics(study, where)
    if study.noise_floor:
        for name in (NOISE, noise_name(study.baseline_name)):
            if name in {*study.arms, *study.contrasts}:
                raise ConfigError(f"{where}: {name!r} is the name of the baseline under other seeds; take another")


def _check_contrasts(study: "Study", where: str) -> None:
    check_kind(study.contrasts, Mapping, f"{where}: contrasts")
    for name, weights in study.contrasts.items():
        check_kind(name, str, f"{where}: the name {name!r} of a contrast")
        check_kind(weights, Mapping, f"{where}: contrast {name}")
        for arm, weight in weights.items():
            if not isinstance(weight, numbers.Real):
                raise ConfigError(f"{where}: contrast {name}: {arm}: {weight!r} is no number")
        if unknown := [arm for arm in weights if arm not in study.arms]:
            raise ConfigError(f"{where}: contrast {name}: no arm {unknown[0]!r}{nearest(unknown[0], study.arms)}")
        if not abs(sum(weights.values())) <= 1e-9:
            raise ConfigError(f"{where}: contrast {name}: its weights add up to {sum(weights.values()):g}, not 0")
        if not any(weights.values()):
            raise ConfigError(f"{where}: contrast {name}: no arm has a weight")


def _check_arms(study: "Study", where: str) -> None:
    if isinstance(study.arms, Design):
        raise ConfigError(f"{where}: arms is a Design; give its parts, **vars(design)")
    if not isinstance(study.arms, Mapping):
        given, example = type(study.arms).__name__, "{'base': {}, 'rms': {'model.norm': RMSNorm()}}"
        raise ConfigError(f"{where}: arms is a {given}; give each a name, {example}")
    for name, changes in study.arms.items():
        check_kind(name, str, f"{where}: the name {name!r} of an arm")
        check_kind(changes, Mapping, f"{where}: arm {name}")
    if "" in study.arms:
        raise ConfigError(f"{where}: an arm has no name")
    if len(study.arms) < 2:
        raise ConfigError(f"{where}: {len(study.arms)} arm{'s' * (not study.arms)}; a comparison needs two")
    if study.baseline is not None and study.baseline not in study.arms:
        raise ConfigError(f"{where}: no arm {study.baseline!r}{nearest(study.baseline, study.arms)}")
    if wrong := [rate for arm in study.arms for rate in study.rates(arm) if not 0 <= rate < math.inf]:
        raise ConfigError(f"{where}: learning rate {wrong[0]} is not a number from 0 on")


def _check_budget(study: "Study", where: str) -> None:
    if study.seeds < 2:
        raise ConfigError(f"{where}: {study.seeds} seeds; an interval needs two")
    if study.max_seeds is not None and study.max_seeds < study.seeds:
        raise ConfigError(f"{where}: max_seeds {study.max_seeds} is less than seeds {study.seeds}")
    if study.match is None and study.match_by != MATCH_BY:
        raise ConfigError(f"{where}: match_by {study.match_by}: nothing is matched; give match too")
    if study.match == "seconds" and study.match_by != "steps":
        raise ConfigError(f"{where}: match_by {study.match_by}; time is matched by steps")
    last = study.first_seed + study.looks[-1] - 1 + (NOISE_SEEDS if study.noise_floor else 0)
    if study.first_seed < 0 or last >= 2**31:
        raise ConfigError(f"{where}: first_seed {study.first_seed}: its seeds, up to {last}, are not in [0, 2³¹)")


def _check_metrics(study: "Study", where: str) -> None:
    labels = [*SUMS, *(probe.label for probe in study.probes)]
    if same := [label for label in labels if labels.count(label) > 1]:
        raise ConfigError(f"{where}: two probes are called {same[0]!r}")
    for asked in (study.metric, *([study.tuned_by] if study.tuned_by else [])):
        if asked not in labels:
            raise ConfigError(f"{where}: no metric {asked!r}{nearest(asked, labels)}")
    if not 0 < study.margin < math.inf:
        raise ConfigError(f"{where}: margin {study.margin} is not a positive number")
    for number in ("fails_above", "minutes"):
        if (value := getattr(study, number)) is not None and not value >= 0:
            raise ConfigError(f"{where}: {number} {value} is negative or not a number")
    if study.minutes is not None and len(study.looks) == 1:
        raise ConfigError(f"{where}: minutes {study.minutes:g} end nothing: no seeds are added; give max_seeds too")
