"""Fields of published config.json files and of our config, converted both ways."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from transformer.activations.activation import GELU, GLU, Activation, QuickGELU, ReLU, Sigmoid, SiLU, SquaredReLU, Tanh
from transformer.core.changes import replace
from transformer.core.errors import ConfigError, nearest
from transformer.mixers.attention.head_norms import HeadNorm, WideQKNorm
from transformer.mixers.mixer import Mixer
from transformer.models.pattern import Alternate

Json = Mapping[str, Any]
M = TypeVar("M", bound=Mixer)

NEUTRAL = (
    # origin of the file
    r"architectures|model_type|_name_or_path|(torch_)?dtype|transformers_version|tokenizer_class|finetuning_task|auto_map"
    r"|initializer_(range|factor)|init_std|gradient_checkpointing|pretraining_tp|replacing_rate"
    r"|max_sequence_length|unsloth_\w+|transformers\.js_config|save_step|student_decoder_layers|neftune_noise_alpha"
    r"|is_llama_config|n_special|predict_special_tokens"
    # what the class of the model says, and names of classes where it has no use for them
    r"|is_encoder_decoder|problem_type|_?num_labels|id2label|label2id"
    # how it is computed
    r"|_?attn_implementation|_flash_attn_2_enabled|use_flash_attn|chunk_size_feed_forward"
    # rates of dropout and terms of the loss, which training decides
    r"|.*(dropout|pdrop|layerdrop).*|router_(aux_loss_coef|jitter_noise)"
    # special tokens, and defaults of decoding
    r"|(\w+_)?(bos|eos|pad|unk|sep|cls|mask|decoder_start)_token_id|task_specific_params|prefix|bad_words_ids"
    r"|max_length|min_length|num_beams|early_stopping|length_penalty|do_sample"
    r"|temperature|top_[kp]|typical_p|(repetition|diversity)_penalty|force_bos_token_to_be_generated|num_beam_groups"
    r"|(encoder_)?no_repeat_ngram_size|(begin_)?suppress_tokens|num_return_sequences|remove_invalid_values"
    r"|exponential_decay_length_penalty"
    # outputs besides logits
    r"|output_(attentions|hidden_states|router_logits|past|scores)|return_dict(_in_generate)?|use_cache"
    r"|cache_implementation|num_logits_to_keep|torchscript"
)
"""Pattern of fields of any config.json that no logit depends on."""
UNUSED = (
    r"is_decoder|add_cross_attention|cross_attention_hidden_size|tie_encoder_decoder|rope_interleaved|pruned_heads"
    r"|quantization_config|use_bfloat16|tf_legacy_loss"
)
"""Pattern of those that no logit depends on where they are null, false or empty, as in most files."""

ACTIVATIONS: dict[str, Activation] = {
    "relu": ReLU(),
    "gelu": GELU(),
    "gelu_new": GELU(tanh=True),
    "gelu_pytorch_tanh": GELU(tanh=True),
    "gelu_fast": GELU(tanh=True),
    "quick_gelu": QuickGELU(),
    "silu": SiLU(),
    "swish": SiLU(),
    "relu2": SquaredReLU(),
    "sigmoid": Sigmoid(),
    "tanh": Tanh(),
}
BIASES = ("query", "key", "value", "out")
"""All projections of attention."""
GATED: dict[str, Activation] = {name: GLU(gate=gate) for name, gate in ACTIVATIONS.items()}
"""The same names where the architecture multiplies the activation by another branch."""


@dataclass(frozen=True)
class Field:
    """One or more fields of config.json that set one thing."""

    theirs: tuple[str, ...]
    """Their names; absent ones have the default of the architecture."""
    read: Callable[[Json], dict[str, Any]]
    """Maps their fields to changes of our config, by dotted path."""
    write: Callable[[Any], dict[str, Any]]
    """Maps our config to their fields."""


def same(theirs: str | tuple[str, ...], *ours: str, default: Any) -> Field:
    """A value under another name, in one or more of our fields; of several of theirs the first that is not null."""
    names = (theirs,) if isinstance(theirs, str) else theirs

    def read(fields):
        value = next((fields[name] for name in names if fields.get(name) is not None), default)
        return dict.fromkeys(ours, float(value) if isinstance(default, float) else value)

    return Field(names, read, lambda config: {names[0]: value_at(config, ours[0])})


def kv_heads(*, default: int | None) -> Field:
    """The heads of keys and values; null: as many as of queries, whatever the default."""
    return Field(
        ("num_key_value_heads",),
        lambda fields: {"mixer.num_kv_heads": fields.get("num_key_value_heads", default)},
        lambda config: {"num_key_value_heads": value_at(config, "mixer.num_kv_heads")},
    )


def sizes(
    *, vocab_size: int, d_model: int, d_ff: int, num_layers: int, num_heads: int, max_length: int
) -> tuple[Field, ...]:
    """The sizes that most files name alike, with the defaults of a class."""
    return (
        same("vocab_size", "vocab_size", default=vocab_size),
        same("hidden_size", "d_model", default=d_model),
        same("intermediate_size", "feed_forward.d_ff", default=d_ff),
        same("num_hidden_layers", "num_layers", default=num_layers),
        same("num_attention_heads", "mixer.num_heads", default=num_heads),
        same("max_position_embeddings", "max_length", default=max_length),
    )


def alike(theirs: tuple[str, ...], ours: str, *, default: Any) -> Field:
    """Several of their fields that have to be equal, because we have one for all."""

    def read(fields):
        values = {name: fields.get(name, default) for name in theirs}
        if len(set(values.values())) > 1:
            said = ", ".join(f"{name} {value}" for name, value in values.items())
            raise ConfigError(f"{theirs[0]}: not supported where they differ: {said}")
        return {ours: values[theirs[0]]}

    return Field(theirs, read, lambda config: dict.fromkeys(theirs, value_at(config, ours)))


def choice(theirs: str, ours: str, options: Mapping[Any, Any], *, default: Any) -> Field:
    """A word in their field that stands for a value of ours."""

    def read(fields):
        value = fields.get(theirs, default)
        if isinstance(value, list | dict) or value not in options:
            raise ConfigError(f"{theirs}: no {value!r}{nearest(str(value), map(str, options))}")
        return {ours: options[value]}

    def write(config):
        value = value_at(config, ours)
        return {theirs: next((word for word in (default, *options) if options[word] == value), str(value))}

    return Field((theirs,), read, write)


def fixed(name: str, value: Any, **default: Any) -> Field:
    """A field that has to have one value, because no other is supported; another `default` has to be overruled."""

    def read(fields):
        found = fields.get(name, default.get("default", value))
        if found != value:
            raise ConfigError(f"{name}: {found!r} is not supported, only {value!r}")
        return {}

    return Field((name,), read, lambda config: {name: value})


def several_experts(theirs: str, *, default: int) -> Field:
    """How many experts a token goes to, in code that divides their weights by the sum: the weight of one would be 1.

    Ours is its probability then (Fedus et al. 2021, equation 2).
    """

    def read(fields):
        alone = 1 in (fields.get("num_experts"), fields.get("num_local_experts"))
        if (top := fields.get(theirs, default)) == 1 and not alone:
            raise ConfigError(f"{theirs}: 1 is not supported, the weight of the only expert would always be 1")
        return {"feed_forward.top": top}

    return Field((theirs,), read, lambda config: {theirs: config.feed_forward.top})


def norms_eps(theirs: str, *parts: HeadNorm | WideQKNorm, default: float) -> Field:
    """The epsilon of all norms, those of these parts of attention too."""

    def read(fields):
        eps = float(fields.get(theirs, default))
        own = tuple(replace(part, {"norm.eps": eps}) for part in parts)
        return {"norm.eps": eps, **({"mixer.parts": own} if own else {})}

    return Field((theirs,), read, lambda config: {theirs: config.norm.eps})


def attention_bias(theirs: str, *, default: bool, always: tuple[str, ...] = ()) -> Field:
    """Whether all projections of attention have a bias, or only some."""
    return choice(theirs, "mixer.bias", {True: BIASES, False: always}, default=default)


def all_biases(theirs: str, *, default: bool) -> Field:
    """Whether all linear layers have a bias."""

    def read(fields):
        biased = fields.get(theirs, default)
        return {"mixer.bias": BIASES if biased else (), "feed_forward.bias": biased}

    return Field((theirs,), read, lambda config: {theirs: config.feed_forward.bias})


def one_turn(kinds: Sequence[Any]) -> tuple[Any, ...]:
    """The shortest beginning of a list that it repeats."""
    lengths = range(1, len(kinds) + 1)
    period = next((n for n in lengths if list(kinds) == list(kinds[:n]) * (len(kinds) // n)), 0)
    return tuple(kinds[:period])


def layer_values(name: str, fields: Json) -> Sequence[Any] | None:
    """The values of all layers in a field that may be null.

    Raises:
      ConfigError: they are not as many as the layers that the file has.
    """
    values, layers = fields.get(name), fields.get("num_hidden_layers")
    if values and layers is not None and len(values) != layers:
        raise ConfigError(f"{name}: {len(values)} values for {layers} layers")
    return values


def by_layer(turns: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """The changes that give layers these values at these paths: a field where all agree, or else a pattern."""
    shortest = {path: one_turn(values) for path, values in turns.items()}
    alike = {path: values[0] for path, values in shortest.items() if len(values) == 1}
    return alike | {"pattern": tuple(Alternate(path, turn) for path, turn in shortest.items() if path not in alike)}


def of_layers(config: Any, path: str) -> list[Any]:
    """The value at a path in every layer."""
    return [value_at(config.layer_config(layer), path) for layer in range(config.num_layers)]


def first(kind: type[M], layers: Sequence[Any]) -> M:
    """The mixer of the first layer of a kind.

    Raises:
      ConfigError: there is none.
    """
    for mixer in layers:
        if isinstance(mixer, kind):
            return mixer
    raise ConfigError(f"model.mixer: no layer has {kind.name or kind.__name__.lower()}")


def mixers(*theirs: str, read: Callable[[Json], list[Any]], write: Callable[[list[Any]], dict[str, Any]]) -> Field:
    """The mixers of all layers, which take turns, from fields of theirs and back."""
    return Field(
        theirs,
        lambda fields: {"pattern": (Alternate("mixer", one_turn(read(fields))),)},
        lambda config: write(of_layers(config, "mixer")),
    )


def labels() -> Field:
    """The number of classes, which files list by name."""

    def read(fields):
        return {"num_classes": len(fields["id2label"]) if "id2label" in fields else fields.get("num_labels", 2)}

    def write(config):
        names = [f"LABEL_{i}" for i in range(config.num_classes)]
        return {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}

    return Field(("id2label", "label2id", "num_labels"), read, write)


OPEN: dict[str, Callable[[Any], int]] = {
    "mixer.num_kv_heads": lambda config: config.mixer.sizes(config).num_kv_heads,
    "mixer.head_dim": lambda config: config.mixer.sizes(config).head_dim,
    "mixer.key_dim": lambda config: config.mixer.sizes(config)[0],
    "mixer.value_dim": lambda config: config.mixer.sizes(config)[1],
    "feed_forward.d_ff": lambda config: config.feed_forward.width(config),
    "num_encoder_layers": lambda config: config.encoder.num_layers,
}
"""Sizes that our config may leave open, and how they follow from others."""


def value_at(config: Any, path: str) -> Any:
    """The value at a dotted path; for an open size, the derived one."""
    value = config
    for name in path.split("."):
        value = getattr(value, name)
    return OPEN[path](config) if value is None and path in OPEN else value
