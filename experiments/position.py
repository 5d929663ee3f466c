"""Which positional scheme? At the length of training, and on texts twice and four times as long.

Expected (Press et al. 2021): on longer texts sinusoids collapse first, then rotary positions, then T5's
bias; ALiBi stays as good. At the length of training relative schemes are ahead early (RoPE above all). The
column `loss at 2x length` is the loss of tokens past the length of training.

    python -m experiments.position                     two cores: 8 minutes
    python -m experiments.position full                a GPU

Found with `--seeds 12` (2 layers, d 64, 300 steps of 32 characters; jax 0.10.2, two cores with other work,
2026-11-24), nats per token, differences with intervals that hold together, and the loss of tokens past the length of
training in 2 and 4 times as long a text:

    learned                       2.3380 ± 0.0086
    none                          2.3163 ± 0.0096  -0.0217 [-0.0303, -0.0131]  better      2.3870  2.3855
    sinusoidal                    2.2786 ± 0.0182  -0.0594 [-0.0835, -0.0353]  better      2.4574  2.4692
    sinusoidal, small embeddings  3.2417 ± 0.0421  +0.9037 [+0.8380, +0.9694]  worse       3.3373  3.6538
    rope                          2.1339 ± 0.0149  -0.2042 [-0.2203, -0.1880]  better      2.2906  2.4308
    alibi                         2.2134 ± 0.0143  -0.1246 [-0.1406, -0.1086]  better      2.2472  2.2371
    t5 bias                       2.1796 ± 0.0264  -0.1584 [-0.1940, -0.1228]  better      2.3097  2.3591
    learned, other seeds          2.3296 ± 0.0089  -0.0085 [-0.0279, +0.0110]  unresolved

Signs reproduced: RoPE is first at the length of training; past it sinusoids lose most, then RoPE and T5's bias, and
ALiBi stays as good. Sinusoids with the embeddings of their paper are ahead of learned positions; with embeddings of
standard deviation 0.02, which they drown, they learn nothing. The best rates of all others lie inside the grid.
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
