"""Which structure? The same sublayers in another order or number, at equal parameters and at equal operations.

Expected: parallel attention and feed-forward cost little (PaLM, 2022); macaron (Lu et al. 2019) gains little;
removing feed-forward or attention loses much; experts gain at equal operations, not at equal
parameters (Fedus et al. 2021; Narang et al. 2021: Switch 2.135 against 2.182 of T5's loss at equal operations).

    python -m experiments.structure                    two cores: minutes
    python -m experiments.structure full               a GPU

Found at equal parameters, with single 95 % intervals and Holm's correction (2 layers, d 64, 300 steps, 4 estimation
seeds of 6; jax 0.10.2, two cores, 2026-11-21), nats per token:

    sequential     2.2943 ± 0.0254
    parallel       2.3057 ± 0.0134   +0.0114 ± 0.0191   unresolved
    macaron        2.3311 ± 0.0195   +0.0368 ± 0.0128   worse
    experts        2.3437 ± 0.0271   +0.0494 ± 0.0380   unresolved
    twice as deep  2.3335 ± 0.0299   +0.0392 ± 0.0180   worse

Parallel costs little: sign as expected, not resolved. Macaron gains nothing here. 300 steps measure
speed of learning, and narrow networks learn more slowly.

Found at equal operations (the same, with steps chosen to match):

    sequential         2.2943 ± 0.0254
    parallel           2.3057 ± 0.0134   +0.0114 ± 0.0191   unresolved
    macaron            2.4114 ± 0.0441   +0.1171 ± 0.0339   worse
    experts            2.3085 ± 0.0333   +0.0142 ± 0.0143   unresolved
    twice as deep      2.4548 ± 0.0203   +0.1604 ± 0.0177   worse
    attention only     2.1959 ± 0.0291   -0.0985 ± 0.0183   better
    feed-forward only  2.3884 ± 0.0318   +0.0940 ± 0.0442   worse

Arms that cost less per step get more steps, which decides here: attention only had 2.4 times as many, macaron
two thirds and twice as deep half. Experts do not gain yet, against the expectation.

There are two studies, in the folders `parameters` and `flops`: d_ff is chosen so that every arm has as many
parameters as the baseline, or the number of steps so that it costs as many operations in total.
"""

from typing import Any

from experiments import cli
from experiments.study_command import StudyCommand, budgets, run_parsed
from transformer.core.errors import ConfigError
from transformer.feed_forwards.experts import TopKExperts
from transformer.models.blocks import Macaron, Parallel

ARMS: dict[str, dict[str, Any]] = {
    "sequential": {},
    "parallel": {"model.block": Parallel()},
    "macaron": {"model.block": Macaron()},
    "experts": {"model.feed_forward": TopKExperts(num_experts=4, top=1)},
    "twice as deep": {"model.num_layers": 4},
}
ALONE: dict[str, dict[str, Any]] = {
    "attention only": {"model.feed_forward": None},
    "feed-forward only": {"model.mixer": None},
}


def main() -> None:
    command = cli.parse(StudyCommand, budgets("structure"), description=__doc__)
    if command.match is not None:
        raise ConfigError("match: both studies are asked, of equal parameters and of equal operations; leave it out")
    parameters = command.replace(workdir=command.workdir / "parameters", match="parameters")
    run_parsed("structure, equal parameters", ARMS, parameters)
    flops = command.replace(workdir=command.workdir / "flops", match="flops", match_by="steps")
    run_parsed("structure, equal operations", ARMS | ALONE, flops)


if __name__ == "__main__":
    cli.main(main)
