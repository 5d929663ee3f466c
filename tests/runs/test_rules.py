"""Update rules and groups as values: what is refused, and their text and JSON forms in a run's config."""

import pytest

from transformer.core.values import ConfigError
from transformer.runs.config import RunConfig
from transformer.runs.optimizer import OptimizerConfig, ParameterGroup
from transformer.runs.rules import SGD, AdamW, Lion, Muon, ScheduleFree

GROUPS = (ParameterGroup("embedding*", rate=0.1, decay=0.0), ParameterGroup("*kernel"))


@pytest.mark.parametrize("rule", [AdamW(), SGD(nesterov=True), Muon(rest=AdamW(beta2=0.95)), ScheduleFree(beta=0.95)])
def test_a_run_with_a_rule_and_groups_has_a_json_form(rule):
    config = RunConfig(optimizer=OptimizerConfig(rule=rule, groups=GROUPS))
    assert RunConfig.from_json(config.to_json()) == config
    assert config.replace({"optimizer.rule": str(rule)}) == config


def test_a_group_reads_well():
    assert str(GROUPS[0]) == "group(pattern='embedding*', rate=0.1, decay=0.0)"
    assert ParameterGroup.parse("group('embedding*', rate=0.1, decay=0)") == GROUPS[0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AdamW(beta2=1.0), r"adamw.beta2: 1.0 is not in \[0, 1\)"),
        (lambda: Lion(beta1=-0.1), r"lion.beta1: -0.1 is not in \[0, 1\)"),
        (lambda: ParameterGroup("*", rate=-1.0), "group.rate: -1.0 is negative"),
        (lambda: ParameterGroup("*", decay=-1.0), "group.decay: -1.0 is negative"),
        (
            lambda: RunConfig(optimizer=OptimizerConfig(rule=ScheduleFree()), average_last=3),
            "average_last: schedule_free is judged by a mean of its own",
        ),
    ],
)
def test_what_cannot_be_is_one_line(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
