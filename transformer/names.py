"""The front door: every public name and the module it is in, from which `T.RMSNorm` and `T.norms.RMSNorm` are loaded
when they are first used.

`python -m transformer.testing.stubs` writes the stubs (`__init__.pyi`) that type checkers and editors read.
"""

import importlib
from collections.abc import Callable
from typing import Any

NAMES: dict[str, str] = {
    "activations.activation": (
        "Activation CELU ClampedSwiGLU ELU GELU GLU LeakyReLU Linear Mish QuickGELU ReLU SELU SiLU Sigmoid SoLU "
        "Softplus SquaredReLU Squareplus Swish Tanh"
    ),
    "analysis.activations": "activation_names intervene run_with_cache stacked",
    "analysis.bleu": "Bleu bleu4",
    "analysis.breakdown": "breakdown",
    "analysis.counts": (
        "cache_bytes forward_flops forward_flops_per_token parameter_count step_flops train_flops train_flops_per_token"
    ),
    "analysis.depth": "norms_by_layer rank_collapse receptive_field root_mean_square",
    "analysis.heads": "attention_distance attention_entropy induction_scores previous_token_scores repeated_tokens",
    "analysis.interventions": "ablate_heads patch patching_effects",
    "analysis.lenses": "logit_attribution logit_lens",
    "analysis.plots": "attention_maps forest heat_map learning_rate_curves loss_curves position_similarity",
    "core.changes": "replace",
    "core.errors": "ConfigError",
    "core.json": "fingerprint from_json to_json",
    "core.modules": "abstract initialize specs split",
    "core.parameters": "Constant FanIn FirstRow Identity Initializer Normal Parameter Xavier",
    "core.runtime": "start",
    "core.values": "Variant to_text",
    "core.weights": "LowRank Ternary Weights",
    "data.arrays": "arrays",
    "data.corpus": "Blocks Corpus load_corpus",
    "data.dataset": "Batches Dataset load_data",
    "data.labelled": "ClassificationRun LabelledConfig",
    "data.packing": "pack",
    "data.pairs": "Pairs PairsConfig TranslationRun",
    "data.pictures": "ImageConfig ImagePairConfig ImagePairRun ReconstructionRun VisionRun",
    "data.puzzles": "AlgorithmicConfig AlgorithmicRun",
    "data.regression": "InContextRegressionConfig InContextRegressionRun",
    "data.spans": "SpanConfig SpanRun",
    "data.tagged": "TaggedConfig TaggingRun",
    "data.tasks.arithmetic": "Addition Mano ModularArithmetic",
    "data.tasks.chomsky": (
        "BinaryAddition BinaryMultiplication ComputeSqrt CycleNavigation EvenPairs MissingDuplicate "
        "ModularArithmeticBrackets ModularArithmeticSimple SolveEquation StackManipulation"
    ),
    "data.tasks.dyck": "Dyck",
    "data.tasks.flip_flop": "FlipFlop",
    "data.tasks.graphs": "Brevo Depo",
    "data.tasks.groups": "WordProblem",
    "data.tasks.list_operations": "ListOps",
    "data.tasks.mad": "Compression FuzzyRecall InContextRecall Memorization SelectiveCopying",
    "data.tasks.needle": "NeedleInHaystack",
    "data.tasks.phonebook": "PhoneBook",
    "data.tasks.recall": "AssociativeRecall Induction",
    "data.tasks.reg_bench": "RegBench",
    "data.tasks.rewriting": "Copy DuplicateString OddsFirst Reverse Sort",
    "data.tasks.task": "AlgorithmicTask RowTask",
    "data.tokenizer_training": "make_tokenizer",
    "data.tokenizers": "ByteTokenizer CharTokenizer SymbolTokenizer Tokenizer TrainedTokenizer",
    "embeddings.embedding": "Embedding Head HeadTransform",
    "embeddings.head_transforms": "DenseTransform",
    "embeddings.patches": "resize_positions",
    "feed_forwards.canon": "CanonFeedForward",
    "feed_forwards.experts": "ExpertChoice Experts SigmoidTopK TopKExperts TopKProbabilities",
    "feed_forwards.feed_forward": "FeedForward",
    "functional.attention": "Attended attention",
    "functional.biases": "LinearDistance",
    "functional.cache": "Cache Inputs KeyValue State",
    "functional.chunked_attention": "chunked_attention",
    "functional.masks": "Arbitrary BlockDiffusion Causal Full Mask Padding Prefix Segment Tokens Window",
    "functional.linear_recurrences": "Erase Update linear_recurrence linear_step",
    "functional.recurrences": "recur recur_elementwise",
    "functional.segment_memory": "SegmentMemory",
    "inference.beam": "Beam",
    "inference.evaluation": "lm_eval_model",
    "inference.generate": "generate",
    "inference.processors": "Earlier Forbidden History MinimumLength NoRepeat Processor RepetitionPenalty",
    "inference.quantize": "quantize",
    "inference.scoring": "sequence_log_probability sliding_log_probabilities",
    "inference.speculative": "speculate",
    "inference.strategies": "Strategy",
    "inference.tokenwise": "Greedy Sample TokenStrategy",
    "mixers.attention.attention": "Attention",
    "mixers.attention.backends": "Chunked Fused Recurrent Ring",
    "mixers.attention.base": (
        "Backend HeadShape HeadSizes Heads Merge Normalizer Projection Scale ScoreMod Sharing Sparsity"
    ),
    "mixers.attention.exclusive": "XSA",
    "mixers.attention.gates": "HeadScale OutputGate ValueGate",
    "mixers.attention.head_norms": "QKNorm ValueNorm WideQKNorm",
    "mixers.attention.heads": "DifferentialHeads DifferentialHeadsV2 LatentHeads LatentQueryHeads",
    "mixers.attention.memory": "MemoryKeyValues",
    "mixers.attention.normalizers": (
        "LinearNormalizer Performer ReLUNormalizer Retention SigmoidNormalizer Sink SoftmaxOne TalkingHeads"
    ),
    "mixers.attention.part": "Part",
    "mixers.attention.projections": (
        "ConcatenateOnly ConstantScale InverseScale LearnedScale NoProjections ScaledProjections SumHeads "
        "TiedProjections"
    ),
    "mixers.attention.score_mods": "LogLength SSMax SoftCap",
    "mixers.attention.sharing": "GatedValueEmbeddings ScoreResidual SharedKeyValues ValueEmbeddings ValueResidual",
    "mixers.attention.short_convolution": "CanonA CanonB ShortConvolution Smear",
    "mixers.attention.sparsity": "BigBird DilatedWindow Fixed GlobalTokens Linformer LocalBlocks SlidingWindow Strided",
    "mixers.attention.synthesizers": "DenseSynthesizer RandomSynthesizer Synthesizer",
    "mixers.convolution": "Convolution",
    "mixers.fourier": "Fourier",
    "mixers.mixer": "Context Mixer",
    "mixers.recurrent.delta": "DeltaNet DeltaProduct GatedDeltaNet KimiDeltaAttention",
    "mixers.recurrent.gla": "GatedLinearAttention HGRN2",
    "mixers.recurrent.elementwise": "ElementwiseRecurrence HGRN MinGRU",
    "mixers.recurrent.linear": "LinearRecurrence ProjectedRecurrence",
    "mixers.recurrent.linear_attention": "LightningAttention LinearAttention",
    "mixers.recurrent.mamba2": "Mamba2",
    "mixers.recurrent.mlstm": "MLSTM",
    "mixers.recurrent.recurrence": "Recurrence",
    "mixers.recurrent.rg_lru": "RGLRU",
    "mixers.recurrent.rwkv7": "RWKV7",
    "models.blocks": "BlockLayout Macaron Parallel ParallelNorms Sequential SideBySide Sublayer",
    "models.build": "build initial_params pure_model",
    "models.classifier": "Classifier ClassifierConfig",
    "models.config": "ModelConfig",
    "models.downsampling": "Downsampling Hourglass Latents",
    "models.early_exit": "early_exit",
    "models.encoder": "Encoder",
    "models.encoder_decoder": "EncoderDecoder EncoderDecoderConfig",
    "models.images": "AutoencoderConfig ImageToImage MaskedAutoencoder PatchConfig VisionConfig VisionTransformer",
    "models.language_model": "LanguageModel",
    "models.merge": "merged",
    "models.pattern": "Alternate",
    "models.pooling": "AttentionPooling ClassToken FirstToken MeanPooling MultiheadPooling PerToken Pooling",
    "models.stack": "Layers Scanned Unrolled",
    "models.vectors": "VectorConfig VectorModel",
    "norms.group_norm": "GroupNorm",
    "norms.norm": "LayerNorm Norm RMSNorm",
    "norms.scale_norm": "ScaleNorm",
    "norms.sequence_norm": "SequenceLayerNorm",
    "norms.without_statistics": "Derf DyT Shift",
    "objectives.chunked": "ChunkedNextToken",
    "objectives.classes": "Classification TokenClassification",
    "objectives.objective": "NextToken Objective Sums",
    "objectives.pairs": "SequenceToSequence",
    "objectives.pictures": "Reconstruction",
    "objectives.tokens": "MaskedToken MultiToken PrefixToken",
    "objectives.vectors": "Regression",
    "positions.absolute": "Learned QueryKeySinusoidal Sinusoidal Sinusoidal2D StepSinusoidal",
    "positions.contextual": "Contextual Forgetting",
    "positions.position": "Position",
    "positions.randomized": "Randomized",
    "positions.relative": "ALiBi FIRE KERPLE RelativeKeys T5Bias TransformerXL",
    "positions.rotary": "LinearScaling Llama3Scaling NTKScaling RoPE RoPE2D RoPEScaling XPos YaRN YaRNByPair",
    "residuals.multi_stream": "Backout EmbeddingSkip HyperConnections ManifoldHyperConnections ResiDual UNet",
    "residuals.residual": (
        "BranchNorm DeepNorm NoNormResidual PeriNorm PostNorm PreNorm Residual SandwichNorm ScaledPreNorm "
        "SingleStream SubNorm"
    ),
    "residuals.scaled_branches": "Fixup LayerScale ReZero TFixup",
    "runs.config": "Replica RunConfig grid",
    "runs.data": "DataConfig TextConfig",
    "runs.mesh": "HostsConfig MeshConfig Shard",
    "runs.muon": "Muon NewtonSchulz NorMuon Orthogonalization PolarExpress",
    "runs.mup": "mup",
    "runs.optimizer": "OptimizerConfig ParameterGroup",
    "runs.presets": "PRESETS preset",
    "runs.rules": "ADOPT AdEMAMix Adafactor AdamW Lion SGD ScheduleFree UpdateRule",
    "runs.schedules": "ConstantRate Cosine InverseSquareRoot LinearDecay Schedule WarmupStableDecay",
    "runs.tokenizers": "BPE Byte ByteBPE Char FromFile Symbols Tokenization Word WordPiece",
    "runs.wrapped_rules": "Cautious Hyperball",
    "study.analyse": "read_study",
    "study.designs": "Design IsoFlop Ladder add_one_in between factorial leave_one_out",
    "study.engines": "DaskEngine Engine LocalEngine SchedulerEngine",
    "study.probes": "Probe",
    "study.report": "Report",
    "study.running": "StudyError",
    "study.scaling": "best_sizes fit_power_law ladder_laws",
    "study.study": "Study",
    "training.checkpoint": "CheckpointError",
    "training.loop": "train",
    "training.outcome": "Outcome",
    "training.optimizer": "Numbers make_optimizer stack_numbers trained_part",
    "training.replicas": "over_replicas repeat",
    "training.sharding": "DATA_PARALLEL FULLY_SHARDED TENSOR_PARALLEL make_mesh",
    "training.signals": "Interrupted",
    "training.step": "TrainState create_train_state make_train_step with_average",
    "training.stored": "StoredRun load_run",
    "training.tensorboard_tracker": "TensorBoard",
    "training.trackers": "Tracker",
    "training.trackio_tracker": "Trackio",
    "training.wandb_tracker": "WandB",
}
"""Public names by module."""
DAY = (
    "Attention EncoderDecoderConfig ClassifierConfig VisionConfig ModelConfig RunConfig OptimizerConfig TextConfig "
    "Replica LanguageModel EncoderDecoder Classifier Encoder VisionTransformer FeedForward Embedding Head Alternate "
    "LayerNorm RMSNorm PreNorm PostNorm RoPE Learned GELU GLU SiLU Mixer Recurrence Norm Activation Position "
    "Residual Part Parameter ConfigError NextToken MaskedToken AdamW Cosine Study Greedy Sample Beam build split train "
    "preset generate load_data make_tokenizer parameter_count forward_flops run_with_cache intervene logit_lens "
    "attention Causal Tokens replace grid"
)
"""The names of a day, which `dir` shows beside the rooms."""


def places() -> dict[str, str]:
    """The module of each public name."""
    return {name: module for module, names in NAMES.items() for name in names.split()}


def room(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """(`__getattr__`, `__dir__`) of a package: its public names, loaded on first use, and the rooms below it."""
    prefix = package.partition(".")[2]
    below = {name: module for name, module in places().items() if not prefix or f"{module}.".startswith(f"{prefix}.")}
    inner = rooms(prefix)

    def load(name: str) -> Any:
        if name in below:
            return getattr(importlib.import_module(f"transformer.{below[name]}"), name)
        if name in inner:
            return importlib.import_module(f"{package}.{name}")
        from transformer.core.errors import form_of, same, similar  # only now: this file is read first of all
        from transformer.core.synonyms import FORMS

        known = [*below, *inner]
        form = next(((family, own) for family in FORMS if (own := form_of(name, [family]))), None)
        if form and not same(name, known):
            hint = f"; here it is the {' '.join(form)} in text form"
        else:
            meant = similar(name, known)
            hint = f"; did you mean {meant!r}?" if meant else ""
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")

    def listed() -> list[str]:
        shown = [name for name in DAY.split() if name in below] if not prefix else list(below)
        return sorted([*shown, *inner])

    return load, listed


def rooms(prefix: str) -> set[str]:
    """The packages directly below one."""
    depth = prefix.count(".") + 1 if prefix else 0
    inside = (module.split(".") for module in NAMES if not prefix or module.startswith(f"{prefix}."))
    return {parts[depth] for parts in inside if len(parts) > depth + 1}
