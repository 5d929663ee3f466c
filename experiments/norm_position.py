"""Where should the norm sit? Post, pre, sandwich and none, each with its own best learning rate.

Expected (Xiong et al. 2020): deep post-norm models need warm-up and small learning rates, pre-norm
ones do not; at few layers with warm-up the placements are close.

    python -m experiments.norm_position                      two cores: 4 minutes
    python -m experiments.norm_position full                 a GPU: 12 layers, eleven placements
    python -m experiments.norm_position --arms pre deepnorm hyper
    python -m experiments.norm_position --data.path input.txt --optimizer.warmup-steps 0

Found with `--seeds 8` (2 layers, d 64, 500 steps, four rates; jax 0.10.2, two cores of an AMD EPYC, 2026-11-29), nats
per token, differences with intervals that hold together, and sensitivity to the learning rate:

    pre       2.2375 ± 0.0155                                            0.162
    post      2.4237 ± 0.0110  +0.1862 [-0.1715, +0.7889]  unresolved  0.208
    sandwich  2.4265 ± 0.0182  +0.1889 [+0.1482, +0.2296]  worse       0.050
    none      2.3872 ± 0.0186  +0.1497 [+0.1153, +0.1841]  worse       0.208

Post-norm has 2.301 at .003, .06 more than pre-norm, but half of its seeds choose .01, at which two of eight learn no
more than how often each character is there, so that nothing is told: `experiments/effects/warmup.py` asks it better.
Sandwich is slower and the least sensitive. Seeds hardly correlate between arms (ρ = -0.28), so pairing gained nothing.
"""

from experiments import cli
from experiments.study_command import budgets, run_study
from transformer.residuals.multi_stream import HyperConnections, ResiDual
from transformer.residuals.residual import (
    BranchNorm,
    DeepNorm,
    NoNormResidual,
    PeriNorm,
    PostNorm,
    PreNorm,
    SandwichNorm,
)
from transformer.residuals.scaled_branches import LayerScale, ReZero

ARMS = {
    "pre": {"model.residual": PreNorm()},
    "post": {"model.residual": PostNorm()},
    "sandwich": {"model.residual": SandwichNorm()},
    "none": {"model.residual": NoNormResidual()},
    "peri": {"model.residual": PeriNorm()},
    "branch": {"model.residual": BranchNorm()},
    "deepnorm": {"model.residual": DeepNorm()},
    "rezero": {"model.residual": ReZero()},
    "layerscale": {"model.residual": LayerScale(initial=0.1)},
    "residual": {"model.residual": ResiDual()},
    "hyper": {"model.residual": HyperConnections()},
}


def main() -> None:
    presets = budgets("norm_position", steps=500, arms=("pre", "post", "sandwich", "none"))
    full = presets["full"].replace({"model.num_layers": 12})
    run_study("norm position", ARMS, presets | {"full": full}, __doc__)


if __name__ == "__main__":
    cli.main(main)
