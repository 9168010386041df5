"""Faults of evaluation, cache, decoding and evidence (chapters 9 to 12)."""

import contextlib
import dataclasses
import json

import torch

from course_lib import attention, generation
from course_lib.errors import CourseError
from course_lib.losses import mean_nats
from course_lib.workbook.faults_model import FORWARD, attribute
from course_lib.workbook.planting import fault
from course_lib.workbook.replacing import replaced

EMBED = "course_lib.model.TransformerLM.embed"
DISTRIBUTION = "course_lib.generation.next_distribution"
CANONICAL = "course_lib.files.canonical_json"


@fault(
    "dropout-in-evaluation",
    chapter=9,
    place="course_lib.losses.evaluation_mode",
    is_like="an evaluation with dropout still on",
    symptom="the same checkpoint gives another loss each time",
    caught_by=[
        "tests/test_ch09_evaluation.py::test_dropout_does_not_count_in_evaluation",
        "tests/test_ch09_evaluation.py::test_evaluating_twice_gives_the_same_to_the_last_digit",
    ],
)
def dropout_in_evaluation(original):
    @contextlib.contextmanager
    def evaluation_mode(model):
        with torch.no_grad():
            yield model.train()

    return evaluation_mode


@fault(
    "left-in-evaluation-mode",
    chapter=9,
    place="course_lib.losses.evaluation_mode",
    is_like="an evaluation that leaves the model in evaluation mode",
    symptom="after the first look, whoever trains on trains without dropout",
    caught_by=[
        "tests/test_ch09_evaluation.py::test_the_mode_comes_back_also_when_the_evaluation_raised",
        "tests/test_ch09_evaluation.py::test_an_evaluation_leaves_the_model_and_the_random_stream_as_they_were",
    ],
)
def left_in_evaluation_mode(original):
    @contextlib.contextmanager
    def evaluation_mode(model):
        with torch.no_grad():
            yield model.eval()

    return evaluation_mode


@fault(
    "mean-of-batch-means",
    chapter=9,
    place="course_lib.losses.pool_loss",
    is_like="a pool loss that is the mean of the means of its batches",
    symptom="the loss depends on the batch size",
    caught_by=[
        "tests/test_ch09_evaluation.py::test_a_pool_loss_is_a_sum_and_a_count_and_no_mean_of_means",
    ],
)
def mean_of_batch_means(original):
    def pool_loss(model, tokens, targets, batch_size):
        means, total = [], 0
        for first in range(0, len(tokens), batch_size):
            part = slice(first, first + batch_size)
            nats, count = original(model, tokens[part], targets[part], batch_size)
            if count:
                means.append(mean_nats(nats, count))
            total += count
        return sum(means) / len(means) * total, total

    return pool_loss


@fault(
    "one-target-too-few",
    chapter=9,
    place="course_lib.evaluation.totals",
    is_like="totals that count one target too few",
    symptom="sum over count is not the loss that is reported",
    caught_by=[
        "tests/test_ch09_evaluation.py::test_a_perplexity_too_large_for_a_number_is_none",
        "tests/test_ch09_evaluation.py::test_each_document_has_its_own_row_and_they_add_up",
    ],
)
def one_target_too_few(original):
    def totals(nats, targets):
        result = original(nats, targets)
        if result["count"] > 1:
            result["count"] -= 1
            result["loss"] = result["nats"] / result["count"]
        return result

    return totals


@fault(
    "unknown-folded-in",
    chapter=9,
    place="course_lib.evaluation.by_kind",
    is_like="an evaluation that counts unknown characters as known",
    symptom="nobody sees that a handful of unknown characters carries much of the loss",
    caught_by=[
        "tests/test_ch09_evaluation.py::test_known_unknown_and_eos_are_totalled_apart",
        "tests/test_ch09_evaluation.py::test_the_counts_of_the_course_documents",
    ],
)
def unknown_folded_in(original):
    def by_kind(nats, targets):
        kinds = original(nats, targets.where(targets != 0, 3))
        return kinds

    return by_kind


@fault(
    "baseline-counts-the-test",
    chapter=9,
    place="course_lib.evaluation.CountModel.__init__",
    is_like="a count that has seen texts it is then scored on",
    symptom="the baseline is far too good",
    caught_by=[
        "tests/test_ch09_evaluation.py::test_the_bigram_by_hand",
        "tests/test_ch09_evaluation.py::test_the_probabilities_of_every_possible_target_sum_to_one",
    ],
)
def baseline_counts_the_test(original):
    def __init__(self, documents_ids, vocab_size):
        every_id_once = [[id_] * 2 for id_ in range(vocab_size)]
        original(self, [*documents_ids, *every_id_once], vocab_size)

    return __init__


@fault(
    "cache-positions-reset",
    chapter=10,
    place=EMBED,
    is_like="a decoder that counts positions from 0 in every call",
    symptom="with a cache the text differs from the text without one",
    caught_by=[
        "tests/test_ch10_cache.py::test_cached_equals_uncached_for_any_weights_and_tokens",
        "tests/test_ch10_cache.py::test_cached_positions_go_on_where_the_past_ended",
    ],
)
def cache_positions_reset(original):
    return lambda self, tokens, past_length=0: original(self, tokens, 0)


def unchecked_length(past, *_):
    """Return the length of a past of any length."""
    return 0 if past is None else past[0][0].shape[-2]


@fault(
    "positions-wrapped",
    chapter=10,
    place=FORWARD,
    is_like="a decoder that wraps positions around at C",
    symptom="beyond the context the model is told that it is at the beginning again",
    caught_by=[
        "tests/test_ch10_cache.py::test_positions_beyond_the_ceiling_are_refused",
        "tests/test_ch10_cache.py::test_the_cache_of_another_model_is_refused",
    ],
)
def positions_wrapped(original):
    def forward(self, tokens, targets=None, past_key_values=None, use_cache=False):
        C = self.config.block_size

        def embed(tokens, past_length=0):
            positions = torch.arange(past_length, past_length + tokens.shape[1]) % C
            hidden = self.token_embedding(tokens) + self.position_embedding(positions)
            return self.embedding_dropout(hidden)

        unchecked = replaced("course_lib.model.check_past", unchecked_length)
        with unchecked, attribute(self, "embed", embed):
            return original(self, tokens, targets, past_key_values, use_cache)

    return forward


@fault(
    "cache-not-truncated",
    chapter=10,
    place=FORWARD,
    is_like="a decoder whose cache grows past the context, at the last position for ever",
    symptom="beyond the context the text degrades, and memory grows",
    caught_by=[
        "tests/test_ch10_cache.py::test_positions_beyond_the_ceiling_are_refused",
        "tests/test_ch10_cache.py::test_the_cache_of_another_model_is_refused",
    ],
)
def cache_not_truncated(original):
    def forward(self, tokens, targets=None, past_key_values=None, use_cache=False):
        last = self.config.block_size - 1

        def embed(tokens, past_length=0):
            positions = torch.arange(past_length, past_length + tokens.shape[1]).clamp(max=last)
            hidden = self.token_embedding(tokens) + self.position_embedding(positions)
            return self.embedding_dropout(hidden)

        unchecked = replaced("course_lib.model.check_past", unchecked_length)
        with unchecked, attribute(self, "embed", embed):
            return original(self, tokens, targets, past_key_values, use_cache)

    return forward


@fault(
    "cache-of-another-batch",
    chapter=10,
    place="course_lib.attention.as_key_value",
    is_like="a decoder that stretches the cache of another batch to fit",
    symptom="rows of a batch continue each other's texts",
    caught_by=[
        "tests/test_ch10_cache.py::test_the_cache_of_another_batch_is_refused",
        "tests/test_ch10_cache.py::test_a_past_is_still_good_after_a_refused_step",
    ],
)
def cache_of_another_batch(original):
    def as_key_value(past, keys):
        if past is None or len(past[0]) == len(keys):
            return original(past, keys)
        rows = torch.arange(len(keys)) % len(past[0])
        return attention.KeyValue(past[0][rows], past[1][rows])

    return as_key_value


@fault(
    "cache-shared-by-two-futures",
    chapter=10,
    place="course_lib.attention.KeyValue.extend",
    is_like="a cache that two futures of one past write into",
    symptom="trying one continuation changes another",
    caught_by=[
        "tests/test_ch10_cache.py::test_two_futures_of_one_past_do_not_disturb_each_other",
    ],
)
def cache_shared_by_two_futures(original):
    def extend(self, *arguments):
        if self.buffer is not None:
            self.buffer.filled = self.length
        return original(self, *arguments)

    return extend


@fault(
    "query-sees-first-keys",
    chapter=10,
    place="course_lib.attention.causal_mask",
    is_like="a mask that counts queries from 0, though they are the last of the keys",
    symptom="with a cache a single query sees the first key only",
    caught_by=[
        "tests/test_ch10_cache.py::test_the_block_with_a_past_equals_the_block_without",
        "tests/test_ch10_cache.py::test_a_past_made_without_gradients_serves_a_step_with_them",
    ],
)
def query_sees_first_keys(original):
    def causal_mask(query_count, key_count, device=None):
        return torch.ones(query_count, key_count, dtype=torch.bool, device=device).tril()

    return causal_mask


@fault(
    "prompt-forgotten",
    chapter=10,
    place="course_lib.generation.generate",
    is_like="a cached generation that has forgotten all but the last token of the prompt",
    symptom="the cached and the uncached text part at the first token",
    caught_by=[
        "tests/test_ch10_generation.py::test_the_cost_of_sliding_is_counted_in_encoded_positions",
        "tests/test_ch10_generation.py::test_each_step_has_the_logits_of_the_oracle_on_the_stated_window",
    ],
)
def prompt_forgotten(original):
    def generate(model, prompt_ids, max_new_tokens, policy=None, use_cache=True, forced=None):
        if use_cache and len(prompt_ids) > 1:
            prompt = prompt_ids[-1:]
            result = original(model, prompt, max_new_tokens, policy, use_cache, forced)
            return dataclasses.replace(result, prompt_ids=list(prompt_ids))
        return original(model, prompt_ids, max_new_tokens, policy, use_cache, forced)

    return generate


def policy_changed(original, change):
    """Return a `next_distribution` that follows ``change(policy)``."""
    return lambda logits, policy: original(logits, change(policy))


@fault(
    "oldest-keys-dropped",
    chapter=10,
    place="course_lib.generation.generate",
    is_like="a window that slides by dropping the oldest keys and values of the cache",
    symptom="beyond the context the cached text is another one; below it all is well",
    caught_by=[
        "tests/test_ch10_generation.py::test_cached_and_uncached_logits_agree_at_every_step",
        "tests/test_ch10_generation.py::test_cached_equals_uncached_for_a_prompt_of_any_length",
    ],
)
def oldest_keys_dropped(original):
    def generate(model, prompt_ids, max_new_tokens, policy=None, use_cache=True, forced=None):
        if not use_cache:
            return original(model, prompt_ids, max_new_tokens, policy, use_cache, forced)
        C, fed, feed = model.config.block_size, [0], generation.feed

        def drop_and_feed(model, ids, past, use_cache):
            fed[0] += len(ids)
            ids = ids[-C:]
            if past is not None:
                first = max(0, past[0].length + len(ids) - C)
                past = [(keys[:, :, first:], values[:, :, first:]) for keys, values in past]
            return feed(model, ids, past, use_cache)

        with (
            replaced("course_lib.generation.window_start", lambda *_: 0),
            replaced("course_lib.generation.past_length", lambda past: fed[0]),
            replaced("course_lib.generation.feed", drop_and_feed),
        ):
            return original(model, prompt_ids, max_new_tokens, policy, use_cache, forced)

    return generate


@fault(
    "temperature-multiplied",
    chapter=11,
    place=DISTRIBUTION,
    is_like="a temperature that the logits are multiplied by",
    symptom="a higher temperature makes the text tamer",
    caught_by=[
        "tests/test_ch11_decoding.py::test_a_temperature_of_a_thousand_is_nearly_uniform_and_keeps_the_order",
        "tests/test_ch11_decoding.py::test_a_huge_temperature_is_uniform_over_what_may_be_chosen",
    ],
)
def temperature_multiplied(original):
    def change(policy):
        if policy.temperature == 0:
            return policy
        return dataclasses.replace(policy, temperature=1 / policy.temperature)

    return policy_changed(original, change)


@fault(
    "top-k-one-too-many",
    chapter=11,
    place=DISTRIBUTION,
    is_like="a top-k that keeps k + 1 tokens",
    symptom="top-k 1 is not greedy",
    caught_by=[
        "tests/test_ch11_decoding.py::test_ties_in_a_large_vocabulary_take_the_lowest_id",
        "tests/test_ch11_decoding.py::test_of_a_tie_the_lowest_id_is_taken",
    ],
)
def top_k_one_too_many(original):
    def change(policy):
        return (
            policy if policy.top_k is None else dataclasses.replace(policy, top_k=policy.top_k + 1)
        )

    return policy_changed(original, change)


@fault(
    "top-p-ignored",
    chapter=11,
    place=DISTRIBUTION,
    is_like="a top-p that is never applied",
    symptom="unlikely characters appear although the mass was limited",
    caught_by=[
        "tests/test_ch11_decoding.py::test_the_least_mass_that_can_be_asked_for_keeps_the_most_likely",
        "tests/test_ch11_decoding.py::test_top_p_keeps_the_fewest_whose_mass_reaches_p",
    ],
)
def top_p_ignored(original):
    return policy_changed(original, lambda policy: dataclasses.replace(policy, top_p=None))


@fault(
    "unknown-emitted",
    chapter=11,
    place=DISTRIBUTION,
    is_like="a decoding that may emit BOS and UNK although the policy says no",
    symptom="the replacement mark stands in generated text",
    caught_by=[
        "tests/test_ch11_decoding.py::test_temperature_zero_takes_the_most_likely_token",
        "tests/test_ch11_decoding.py::test_unk_and_bos_are_never_chosen_and_the_others_share_their_mass",
    ],
)
def unknown_emitted(original):
    return policy_changed(original, lambda policy: dataclasses.replace(policy, raw=True))


@fault(
    "draws-from-the-global-stream",
    chapter=11,
    place="course_lib.generation.choose_token",
    is_like="a decoding that draws from torch's global stream",
    symptom="the same seed does not give the same text",
    caught_by=[
        "tests/test_ch11_decoding.py::test_the_same_seed_draws_the_same_tokens",
    ],
)
def draws_from_the_global_stream(original):
    return lambda logits, policy, generator: original(logits, policy, None)


@fault(
    "eos-ignored",
    chapter=11,
    place="course_lib.generation.generate",
    is_like="a generation that goes on after the end of text",
    symptom="every text has the greatest length",
    caught_by=[
        "tests/test_ch11_decoding.py::test_a_model_that_prefers_eos_stops_at_once",
    ],
)
def eos_ignored(original):
    def generate(model, prompt_ids, max_new_tokens, policy=None, *arguments, **options):
        from course_lib.generation import DecodingPolicy

        policy = dataclasses.replace(policy or DecodingPolicy(), ignore_eos=True)
        return original(model, prompt_ids, max_new_tokens, policy, *arguments, **options)

    return generate


@fault(
    "digest-by-insertion-order",
    chapter=12,
    place=CANONICAL,
    is_like="a digest that depends on the order in which keys were entered",
    symptom="the same manifest, written by another program, has another digest",
    caught_by=[
        "tests/test_ch12_manifest.py::test_the_order_of_keys_does_not_matter_at_any_depth",
        "tests/test_ch12_manifest.py::test_what_has_no_canonical_form_is_refused",
    ],
)
def digest_by_insertion_order(original):
    def canonical_json(value):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    return canonical_json


@fault(
    "digest-of-escapes",
    chapter=12,
    place=CANONICAL,
    is_like="a digest of JSON with escaped characters",
    symptom="the digest is not the one the specification gives for texts beyond ASCII",
    caught_by=[
        "tests/test_ch12_manifest.py::test_characters_stand_as_themselves_in_utf_8",
        "tests/test_ch12_manifest.py::test_what_has_no_canonical_form_is_refused",
    ],
)
def digest_of_escapes(original):
    def canonical_json(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    return canonical_json


@fault(
    "weights-digest-of-names",
    chapter=12,
    place="course_lib.checkpointing.weights_digest",
    is_like="a weights digest over names and shapes, without the values",
    symptom="every checkpoint of one Config has the same digest",
    caught_by=[
        "tests/test_ch08_checkpoint.py::test_the_weights_digest_covers_name_type_shape_and_every_bit",
    ],
)
def weights_digest_of_names(original):
    return lambda weights: original({name: torch.zeros_like(w) for name, w in weights.items()})


@fault(
    "report-of-another-checkpoint",
    chapter=12,
    place="course_lib.manifest.register_file",
    is_like="a result that is registered without saying which weights it is of",
    symptom="the test loss of one checkpoint stands in the folder of another",
    caught_by=[
        "tests/test_ch12_manifest.py::test_a_registered_result_names_the_weights_it_was_made_from"
    ],
)
def report_of_another_checkpoint(original):
    def register_file(manifest, folder, name, **facts):
        changed = {"weights": "0" * 64} if "weights" in facts else {}
        return original(manifest, folder, name, **{**facts, **changed})

    return register_file


@fault(
    "verified-without-numbers",
    chapter=12,
    place="course_lib.verification.claims.Comparison.same",
    is_like="a verification that compares the names of the fields and not their numbers",
    symptom="a better test loss can be typed into the record and registered",
    caught_by=[
        "tests/test_ch12_verify.py::test_a_last_digit_matters_here_and_not_elsewhere",
        "tests/test_ch12_verify.py::test_a_changed_number_of_an_evaluation_is_found_though_it_is_registered",
    ],
)
def verified_without_numbers(original):
    def same(self, claimed, found, where):
        if not isinstance(found, float):
            return original(self, claimed, found, where)
        self.count += 1

    return same


@fault(
    "listed-names-trusted",
    chapter=12,
    place="course_lib.verification.inventory.check_names",
    is_like="a verification that opens whatever path a manifest lists",
    symptom="somebody else's manifest makes it read files outside of the run folder",
    caught_by=[
        "tests/test_ch12_verify.py::test_a_listed_name_that_is_no_path_inside_is_refused_before_anything_is_opened",
        "tests/test_ch12_verify.py::test_two_names_for_one_file_are_refused",
    ],
)
def listed_names_trusted(original):
    return lambda names: None


@fault(
    "near-copies-pass",
    chapter=12,
    place="course_lib.verification.acceptance.bare",
    is_like="a comparison of the splits that a space or a comma deceives",
    symptom="a test text with one more comma stands in training, and the score shines",
    caught_by=[
        "tests/test_ch12_verify.py::test_a_test_text_in_training_is_found_though_white_space_and_marks_differ",
    ],
)
def near_copies_pass(original):
    return lambda text: text


@fault(
    "report-not-compared",
    chapter=12,
    place="course_lib.verification.reporting.check_report",
    is_like="a verification that looks at the digest of a report and not at its numbers",
    symptom="the report says something else than the records it is about",
    caught_by=[
        "tests/test_ch12_report.py::test_a_number_changed_in_a_field_is_found_though_the_report_is_registered",
        "tests/test_ch12_report.py::test_a_report_of_earlier_records_is_found",
    ],
)
def report_not_compared(original):
    return lambda run, name: 1


@fault(
    "nan-in-json",
    chapter=12,
    place="course_lib.files.json_text",
    is_like="a JSON writer that writes NaN",
    symptom="other programs cannot read the record",
    caught_by=[
        "tests/test_files.py::test_refused_json_leaves_the_old_file",
    ],
)
def nan_in_json(original):
    def json_text(value):
        try:
            return original(value)
        except CourseError:
            return json.dumps(value, ensure_ascii=False, indent=2) + "\n"

    return json_text
