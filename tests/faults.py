"""The faults that a user may meet: what is seen then, and the tests that show it."""

import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Fault:
    rows: str
    """Numbers of the fault, `1` or `10–14`; a counted one has a row of its own."""
    fault: str
    seen: str
    tests: str
    """`folder/file::test`, several with blanks between; of one file once."""


GOES_ON = (
    "the same command goes on to the same parameters, result and metrics bit for bit; each step is logged once; no "
    "temporary files stay"
)
FAULTS = (
    Fault("1", "SIGKILL in training", GOES_ON, "training/test_loop::test_kills_at_random_moments_change_no_bit"),
    Fault(
        "2",
        "SIGKILL in a save",
        GOES_ON,
        "training/test_checkpoint::test_an_unfinished_save_is_not_read_and_is_swept_away",
    ),
    Fault(
        "3", "SIGKILL in an asynchronous save", "there is none: a checkpoint is on the disk before the next step", ""
    ),
    Fault(
        "4",
        "SIGKILL while an old checkpoint is deleted",
        GOES_ON,
        "training/test_checkpoint::test_a_deletion_cut_short_leaves_no_checkpoint",
    ),
    Fault(
        "5–7",
        "SIGTERM in a step, in the evaluation, in the first compilation",
        "the step reached is saved; `step 8 is saved in …; the same command with --resume continues`; exit code 75",
        "training/test_faults::test_a_request_to_stop_saves "
        "training/test_faults::test_a_request_to_stop_in_the_first_compilation "
        "training/test_loop::test_sigterm_saves_and_says_how_to_go_on",
    ),
    Fault(
        "8",
        "a second signal",
        "the process ends at once, with 128 + the signal; the last checkpoint is whole",
        "training/test_faults::test_a_second_request_ends_at_once",
    ),
    Fault(
        "9",
        "SIGKILL before the first checkpoint",
        "the same command starts again, with the same result",
        "training/test_faults::test_a_start_that_was_killed_is_begun_again",
    ),
    Fault(
        "10–12",
        "the newest checkpoint truncated, without a file, with bad metadata",
        "a warning that names the damaged file, and the checkpoint before it; with `--strict` an error",
        "training/test_checkpoint::test_any_damaged_file_is_named_and_the_one_before_is_taken "
        "training/test_checkpoint::test_the_manifest_is_guarded_too "
        "training/test_checkpoint::test_strict_stops_at_damage",
    ),
    Fault(
        "13",
        "one bit flipped anywhere in it",
        "the same",
        "training/test_checkpoint::test_any_damaged_file_is_named_and_the_one_before_is_taken",
    ),
    Fault("14", "an empty folder", "the same", "training/test_checkpoint::test_an_empty_folder_is_damage"),
    Fault(
        "15",
        "every checkpoint damaged",
        "an error, never a fresh start; exit code 2",
        "training/test_checkpoint::test_all_damaged_is_an_error_and_never_a_fresh_start",
    ),
    Fault(
        "16–17",
        "the disk full in a checkpoint, in the metrics",
        "the path, the reason and the free bytes; exit code 74; older checkpoints are whole, and with space the same "
        "command goes on (a limit on the size of files stands for the full disk)",
        "training/test_faults::test_a_full_disk_in_a_checkpoint training/test_faults::test_a_full_disk_in_the_metrics "
        "experiments/test_cli::test_exit_codes",
    ),
    Fault(
        "18",
        "a folder that cannot be written",
        "`workdir: … cannot be written`, exit code 2",
        "training/test_faults::test_a_folder_that_cannot_be_written",
    ),
    Fault(
        "19",
        "a folder that is not empty",
        "refused without `--resume` or `--overwrite`, which take no folder that is not a run's; exit code 2",
        "training/test_loop::test_folders_that_are_not_empty",
    ),
    Fault(
        "20",
        "two processes in one folder",
        "the second is refused: `workdir: … is in use by process 4711 on host`; exit code 2",
        "training/test_faults::test_two_processes_in_one_folder",
    ),
    Fault(
        "21–23",
        "resuming with another model, batch, seed, data, tokenizer or dtype",
        "refused with the fields that differ, exit code 2",
        "training/test_faults::test_resuming_another_run_is_refused "
        "training/test_faults::test_resuming_with_another_seed_text_or_tokenizer_is_refused",
    ),
    Fault(
        "24",
        "resuming with more steps",
        "goes on, and says that the schedule is the longer one from here on",
        "training/test_faults::test_a_run_may_be_given_more_steps",
    ),
    Fault(
        "25–27",
        "an unknown flag, a bad choice, a wrong type",
        "one line with the nearest name, exit code 2, before anything compiles",
        "experiments/test_cli::test_wrong_arguments_are_one_line "
        "experiments/test_cli::test_wrong_input_exits_with_2_before_compilation",
    ),
    Fault("28", "an unknown key in a file", "the same", "core/test_json::test_json_errors"),
    Fault(
        "29",
        "an impossible combination",
        "the same: heads that do not divide, positions that end, a norm that leaks in a causal model",
        "models/test_config::test_errors models/test_language_model::test_longer_than_max_length "
        "norms/test_norm::test_norms_say_whether_they_mix_tokens",
    ),
    Fault(
        "30",
        "a token or label out of range",
        "`batch of step 7: tokens has 4 at (2, 3), not in [0, 4)`, before the step; exit code 2",
        "training/test_faults::test_an_id_out_of_range_is_found_before_its_step "
        "training/test_faults::test_a_label_out_of_range",
    ),
    Fault(
        "31–32",
        "a batch, loss or gradient that is not finite; a spike",
        "the state stays as it was before and the run is reported as diverged; with `--optimizer.skip-limit` such "
        "updates, and with `--optimizer.skip-above` those with a large gradient, are left out and logged as `skipped`, "
        "up to so many in a row",
        "training/test_step::test_a_run_that_stops_being_finite_is_frozen_and_remembered "
        "training/test_step::test_updates_that_are_not_finite_are_left_out_until_there_are_too_many_in_a_row "
        "training/test_step::test_updates_with_a_large_gradient_are_left_out "
        "training/test_loop::test_a_diverged_replica_is_reported_and_leaves_the_others_alone",
    ),
    Fault(
        "33",
        "a row without keys, an empty batch",
        "zeros, and finite gradients",
        "functional/test_attention::test_nothing_to_attend_to_gives_zeros "
        "training/test_step::test_an_empty_batch_changes_nothing_and_is_finite",
    ),
    Fault(
        "34",
        "another segment or the padding changes",
        "no effect, on every attention and position",
        "models/test_language_model::test_packing models/test_language_model::test_padding_on_the_left "
        "testing/test_conformance::test_an_option_in_every_context",
    ),
    Fault(
        "35",
        "cached decoding, prompts of mixed lengths, past the training length",
        "the full forward pass, or an error that says what ends; a token for which a cache has no slot has no logits "
        "but NaN",
        "inference/test_cache::test_pieces_are_the_whole inference/test_cache::test_past_the_positions "
        "inference/test_cache::test_past_the_capacity inference/test_generate::test_prompts_of_several_lengths",
    ),
    Fault(
        "36",
        "a corpus that is missing, too short, not UTF-8",
        "one line with the place, exit code 2",
        "data/test_corpus::test_wrong_files_are_one_line "
        "data/test_corpus::test_a_corpus_shorter_than_a_block_or_beyond_the_vocabulary_is_refused "
        "data/test_labelled::test_a_wrong_line_is_named_by_its_number",
    ),
    Fault(
        "37",
        "a damaged or hostile archive",
        "one line; arrays are read without pickle, and no archive is ever unpacked to the disk",
        "data/test_images::test_wrong_arrays_are_one_line data/test_images::test_wrong_files_are_one_line",
    ),
    Fault(
        "38",
        "wrong, missing or damaged tensors, a pickle",
        "refused with their names before anything is read",
        "pretrained/test_store::test_wrong_tensors_are_refused_with_all_names "
        "pretrained/test_store::test_damaged_files_are_refused pretrained/test_store::test_a_pickle_is_never_read",
    ),
    Fault(
        "39",
        "several processes: one is killed, one hangs, one has another config, another number of devices on resume",
        "the others end within `--hosts.patience` seconds, exit code 76, and started again together go on; refused "
        "before there is a folder; a warning that numbers are the same up to rounding, not bit for bit",
        "training/test_processes::test_a_killed_process_costs_nothing "
        "training/test_processes::test_a_process_that_hangs_ends_the_others "
        "training/test_processes::test_processes_with_different_runs_are_refused",
    ),
    Fault(
        "40",
        "a study: a worker killed, an arm that always fails, no scheduler, run again",
        "the others finish; counts of computed and failed arms and their errors, exit code 1; one line after 10 s, "
        "exit code 2; nothing is computed twice",
        "study/test_engines::test_a_killed_worker_changes_nothing "
        "study/test_engines::test_a_failing_arm_does_not_stop_the_others "
        "study/test_engines::test_a_scheduler_that_does_not_answer",
    ),
    Fault(
        "41",
        "any file of a run changed, cut, deleted or replaced",
        "the same bits, or one line that names the file",
        "test_folders::test_a_run_goes_on_to_the_same_bits_or_says_why_not",
    ),
    Fault(
        "42",
        "any file of a study changed, cut, deleted or replaced",
        "the same numbers, with a warning and up to rounding where runs are computed again, or one line that names the "
        "file; read alone, an arm with a damaged run has failed and the others are compared",
        "test_folders::test_a_study_is_read_and_goes_on_to_the_same_numbers_or_says_why_not "
        "study/test_analyse::test_an_arm_with_a_damaged_run_has_failed_and_the_others_are_compared",
    ),
    Fault(
        "43",
        "any file or text that is read, changed in bytes or in values",
        "a value, or one line",
        "test_readers::test_a_file_with_changed_bytes_is_read_or_named "
        "test_readers::test_a_file_with_changed_values_is_read_or_named "
        "test_readers::test_a_changed_text_form_is_a_value_or_named",
    ),
    Fault(
        "44",
        "`--overwrite` on a folder with something else in it",
        "nothing is deleted; what no run wrote is named, exit code 2",
        "training/test_workdir::test_what_no_run_wrote_stops_it_and_everything_stays "
        "training/test_workdir::test_a_folder_with_another_config_is_not_deleted",
    ),
    Fault(
        "45",
        "a folder that names code, data that unpack to more than memory",
        "no module is imported that is not allowed by name; no more is unpacked than is allowed",
        "study/test_engines::test_a_folder_brings_no_code_that_is_not_allowed "
        "data/test_images::test_a_header_that_claims_more_than_there_is "
        "data/test_pairs_text::test_no_more_is_unpacked_than_is_allowed",
    ),
)


def missing_tests() -> list[str]:
    """Tests that the table names and that are not there."""
    named = [test.split("::") for fault in FAULTS for test in fault.tests.split()]
    return [
        f"{file}::{test}"
        for file, test in named
        if not re.search(rf"^def {test}\(", (HERE / f"{file}.py").read_text(), re.MULTILINE)
    ]


def numbers(rows: str) -> list[int]:
    """`10–12` as 10, 11, 12."""
    first, _, last = rows.partition("–")
    return list(range(int(first), int(last or first) + 1))
