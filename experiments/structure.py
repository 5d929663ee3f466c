"""Which structure? The same sublayers in another order or number, at equal parameters and at equal operations.

Expected: parallel attention and feed-forward cost little (PaLM, 2022); macaron (Lu et al. 2019) gains little;
removing feed-forward or attention loses much; experts gain at equal operations, not at equal
parameters (Fedus et al. 2021; Narang et al. 2021: Switch 2.135 against 2.182 of T5's loss at equal operations).

    python -m experiments.structure                    two cores: minutes
    python -m experiments.structure full               a GPU

Found at equal parameters with `--seeds 8` (2 layers, d 64, 300 steps; jax 0.10.2, one core, 37 min with other work
on it for both studies, 2026-11-29), nats per token:

    sequential     2.3767 ± 0.0066
    parallel       2.3753 ± 0.0079  -0.0014 [-0.0081, +0.0053]  equivalent
    macaron        2.4135 ± 0.0063  +0.0368 [+0.0254, +0.0482]  worse
    experts        2.4226 ± 0.0294  +0.0459 [+0.0100, +0.0818]  worse
    twice as deep  2.4196 ± 0.0114  +0.0430 [+0.0266, +0.0593]  worse

Parallel costs nothing that matters, as expected. Macaron gains nothing here. 300 steps measure speed of learning, and
narrow networks learn more slowly.

Found at equal operations (the same, with steps chosen to match):

    sequential         2.3767 ± 0.0066
    parallel           2.3753 ± 0.0079  -0.0014 [-0.0087, +0.0059]  equivalent
    macaron            2.4835 ± 0.0188  +0.1068 [+0.0816, +0.1319]  worse
    experts            2.3908 ± 0.0128  +0.0141 [+0.0008, +0.0274]  worse
    twice as deep      2.5477 ± 0.0106  +0.1710 [+0.1564, +0.1856]  worse
    attention only     2.2826 ± 0.0178  -0.0941 [-0.1202, -0.0680]  better
    feed-forward only  2.4439 ± 0.0090  +0.0672 [+0.0522, +0.0822]  worse

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
