"""Where should the norm sit? Post, pre, sandwich and none, each with its own best learning rate.

Expected (Xiong et al. 2020): deep post-norm models need warm-up and small learning rates, pre-norm
ones do not; at few layers with warm-up the placements are close.

    python -m experiments.norm_position                      two cores: 4 minutes
    python -m experiments.norm_position full                 a GPU: 12 layers, eleven placements
    python -m experiments.norm_position --arms pre deepnorm hyper
    python -m experiments.norm_position --data.path input.txt --optimizer.warmup-steps 0

Found with `--seeds 12 --learning-rates 1e-3 3e-3 1e-2` (2 layers, d 64, 500 steps; jax 0.10.2, two cores with other
work, 2026-11-24), nats per token, differences with intervals that hold together, and sensitivity to the learning rate:

    pre              2.1922 ± 0.0121                                            0.086
    post             2.2654 ± 0.0092  +0.0732 [+0.0573, +0.0891]  worse       0.264
    sandwich         2.3676 ± 0.0122  +0.1754 [+0.1539, +0.1970]  worse       0.053
    none             2.3301 ± 0.0139  +0.1379 [+0.1148, +0.1610]  worse       0.292
    pre, other seeds 2.1874 ± 0.0133  -0.0048 [-0.0305, +0.0209]  unresolved  0.082

Sign reproduced for post against pre, which is also three times as sensitive to the learning rate; the schedule is so
short that it measures speed of learning, not final losses. Sandwich is slower and the least sensitive. Seeds hardly
correlate between arms (ρ = 0.05), so pairing gained nothing here.
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
