"""Which positional scheme? At the length of training, and on texts twice and four times as long.

Expected (Press et al. 2021): on longer texts sinusoids collapse first, then rotary positions, then T5's
bias; ALiBi stays as good. At the length of training relative schemes are ahead early (RoPE above all). The
column `loss at 2x length` is the loss of tokens past the length of training.

    python -m experiments.position                     two cores: 8 minutes
    python -m experiments.position full                a GPU

Found with `--seeds 8` (2 layers, d 64, 300 steps of 32 characters; jax 0.10.2, two cores of an AMD EPYC, 2026-11-29),
nats per token, differences with intervals that hold together, and the loss of tokens past the length of training in 2
and 4 times as long a text:

    learned                       2.3767 ± 0.0066
    none                          2.3625 ± 0.0072  -0.0142 [-0.0294, +0.0011]  unresolved  2.3447  2.3711
    sinusoidal                    2.3163 ± 0.0186  -0.0604 [-0.0875, -0.0333]  better      2.4140  2.4573
    sinusoidal, small embeddings  3.2570 ± 0.0177  +0.8804 [+0.8508, +0.9099]  worse       3.7598  4.2315
    rope                          2.1813 ± 0.0164  -0.1954 [-0.2137, -0.1772]  better      2.2825  2.4671
    alibi                         2.2679 ± 0.0151  -0.1088 [-0.1365, -0.0829]  better      2.2101  2.2291
    t5 bias                       2.2217 ± 0.0099  -0.1550 [-0.1748, -0.1352]  better      2.2587  2.3404

RoPE is first at the length of training, as expected, and ALiBi stays as good past it. But RoPE loses more there, .29 at
four times the length, than sinusoids (.14) and T5's bias (.12), which should have lost most and less. Sinusoids with
the embeddings of their paper are ahead of learned positions; with embeddings of standard deviation 0.02, which they
drown, they learn nothing. The best rates of all others lie inside the grid.
"""

from experiments import cli
from experiments.study_command import budgets, run_study
from transformer.core.parameters import Normal
from transformer.positions.absolute import Learned, Sinusoidal
from transformer.positions.relative import ALiBi, T5Bias
from transformer.positions.rotary import RoPE
from transformer.study.probes import LongerText

SMALL = {"model.embedding.scaled": False, "model.embedding.initializer": Normal(0.02)}
"""In place of the embeddings of the paper's recipe."""
ARMS = {
    "learned": {"model.position": Learned()},
    "none": {"model.position": None},
    "sinusoidal": {"model.position": Sinusoidal()},
    "sinusoidal, small embeddings": {"model.position": Sinusoidal(), **SMALL},
    "rope": {"model.position": RoPE()},
    "alibi": {"model.position": ALiBi()},
    "t5 bias": {"model.position": T5Bias()},
}


def main() -> None:
    run_study("position", ARMS, budgets("position"), __doc__, (LongerText(2), LongerText(4)))


if __name__ == "__main__":
    cli.main(main)
