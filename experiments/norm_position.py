"""Where should the norm sit? Post, pre, sandwich and none, each with its own best learning rate.

Expected (Xiong et al. 2020): deep post-norm models need warm-up and small learning rates, pre-norm
ones do not; at few layers with warm-up the placements are close.

    python -m experiments.norm_position                      two cores: 3 minutes
    python -m experiments.norm_position full                 a GPU: 12 layers, eleven placements
    python -m experiments.norm_position --arms pre deepnorm hyper
    python -m experiments.norm_position --data.path input.txt --optimizer.warmup-steps 0

Found with the first command (2 layers, d 64, 500 steps, 4 estimation seeds of 6, learning rate
chosen from 1e-3, 3e-3, 1e-2 on the other 2; jax 0.10.2, two cores, 2026-11-20), nats per token:

    pre       2.1510 ± 0.0305
    post      2.2153 ± 0.0369   +0.0644 ± 0.0259   worse
    sandwich  2.3255 ± 0.0400   +0.1745 ± 0.0584   worse
    none      2.3033 ± 0.0066   +0.1523 ± 0.0334   worse

Sign reproduced for post against pre, with a schedule so short that it measures speed of learning, not
final losses. No run diverged. Seeds hardly correlate between arms (ρ = 0.01), so pairing gained nothing here.
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
    run_study("norm position", ARMS, presets | {"full": full}, __doc__ or "")


if __name__ == "__main__":
    cli.main(main)
