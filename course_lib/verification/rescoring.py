"""The numbers and texts of a run derived again, each from its weights (chapter 12)."""

import torch

from course_lib.checkpointing import checkpoint_summary
from course_lib.errors import VerificationError
from course_lib.evaluation import evaluate
from course_lib.files import read_json, sha256_file
from course_lib.generation import DecodingPolicy, continue_text, generate, next_distribution
from course_lib.manifest import CHECKPOINT_NAME, METRICS_FORMAT, METRICS_NAME
from course_lib.tokenizer import BOS_ID, UNK_ID
from course_lib.verification.acceptance import part
from course_lib.verification.claims import RETRAINED, Comparison, Found, mismatch
from course_lib.verification.replaying import kept
from course_lib.verification.shapes import METRICS, check_record, check_shape
from course_lib.windows import make_protocol

NOT_OF_THE_POLICY = ("max_new_tokens", "cache")
WHERE_MADE = ("checkpoint", "environment", "weights")  # of a record; the threshold compares them


def metrics_agree(run):
    """Check metrics.json against the checkpoint: steps, each loss, each evaluation."""
    metrics = read_json(run.folder / METRICS_NAME)
    check_shape(metrics, METRICS, METRICS_NAME)
    saved = run.checkpoint
    wanted = {
        "format": METRICS_FORMAT,
        "steps": saved["step"],
        "step_losses": saved["losses"],
        "evaluations": saved["evaluations"],
    }
    comparison = Comparison(exact=True, tolerance=0.0)  # the same numbers, written twice
    comparison.same(metrics, wanted, METRICS_NAME)
    return Found("metrics.json with the checkpoint: steps, losses, evaluations", comparison.count)


def losses_scored(run):
    """Score train and validation again wherever weights are at hand: start, kept, end."""
    rows = run.checkpoint["evaluations"]
    if not rows or rows[-1]["step"] != run.checkpoint["step"]:
        raise VerificationError(
            "the run was stopped before its last evaluation: it has no final loss to check.",
            expected=f"an evaluation after step {run.checkpoint['step']}",
            got=f"the last one after step {rows[-1]['step']}" if rows else "none",
            repair="go on with the run to its end with --resume",
        )
    trainer, comparison, scored = run.new_trainer(), run.comparison(), []
    initial = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    weights = {0: initial} | {one["step"]: one["model"] for _, one in kept(run)}
    weights[run.checkpoint["step"]] = run.checkpoint["model"]
    for row in rows:
        if row["step"] in weights:
            trainer.model.load_state_dict(weights[row["step"]])
            trainer.step = row["step"]
            comparison.same(row, trainer.evaluate(), f"the evaluation after step {row['step']}")
            scored.append(row["step"])
    others = len(rows) - len(scored)
    more = f"; {others} between need --retrain" if others else ""
    steps = ", ".join(map(str, scored))
    return Found(
        f"train and validation losses after steps {steps}, {comparison.how()}{more}",
        comparison.count,
    )


def evaluations_scored(run):
    """Score each registered evaluation again: sums, counts, kinds, documents, baselines."""
    count, names, hows = 0, [], []
    for name, record in run.of_kind("course evaluation 1").items():
        check_record(record, name)
        corpus = run.corpora.get(record["data"]["digest"])
        if corpus is None:
            raise VerificationError(
                f"{name} was scored on the corpus {record['data']['name']!r}, which is not here.",
                expected=f"digest {record['data']['digest']}",
                got=", ".join(f"digest {one}" for one in run.corpora),
                repair="say with --data where that corpus is",
            )
        protocol = make_protocol(run.config.block_size, record["protocol"]["stride"])
        again = evaluate(
            run.model, corpus, record["split"], run.tokenizer, protocol, record["batch_size"]
        )
        comparison = run.comparison(made_where=record.get("environment"))
        comparison.same(without(record, WHERE_MADE), without(again, WHERE_MADE), name)
        count += comparison.count
        names.append(f"{name} ({again['split']}, {again['count']} targets)")
        hows.append(comparison.how())
    if not names:
        return Found("evaluations", not_run="none is registered: python -m course_lib.evaluate")
    return Found(f"{', '.join(names)} scored again, {worst(hows)}", count)


def without(record, names):
    """Return a record without some of its fields."""
    return {name: value for name, value in record.items() if name not in names}


def worst(hows):
    """Return the weakest of several ways in which values were equal."""
    return next((how for how in hows if how != "bit for bit"), "bit for bit")


def generations_replayed(run):
    """Write each registered text again, token for token."""
    count, names, hows = 0, [], []
    for name, record in run.of_kind("course generation 1").items():
        check_record(record, name)
        options = record["policy"]
        try:
            policy = DecodingPolicy(**without(options, NOT_OF_THE_POLICY))
            next_distribution(torch.zeros(run.config.vocab_size), policy)
        except (TypeError, OverflowError) as error:
            raise VerificationError(f"{name} has no decoding policy: {error}.") from error
        limit = options["max_new_tokens"]
        if record["stopped"] != "eos" and limit != len(record["new_ids"]):
            raise mismatch(f"{name}: the number of new tokens", len(record["new_ids"]), limit)
        # One token more than claimed shows whether the text went on.
        tried = min(limit, len(record["new_ids"]) + 1)
        again = continue_text(
            run.model, run.tokenizer, record["prompt"], tried, policy, options["cache"]
        )
        again["policy"]["max_new_tokens"] = limit
        comparison = run.comparison(made_where=record.get("environment"))
        if not comparison.exact and again["new_ids"] != record["new_ids"]:
            hows.append(allowed(run, record, policy, name))
        else:
            comparison.same(without(record, WHERE_MADE), without(again, WHERE_MADE), name)
            hows.append(comparison.how())
        count += len(record["new_ids"])
        names.append(f"{name} ({record['stopped']})")
    if not names:
        return Found("texts", not_run="none is registered: python -m course_lib.generate")
    return Found(f"{', '.join(names)} written again, {worst(hows)}", count)


def allowed(run, record, policy, name):
    """Check that each token of a text made elsewhere could have been chosen; say so.

    Where two logits nearly tie, another machine may choose the other token; from there
    on the texts part.  So each token is judged by the logits of the recorded prefix.
    """
    new, comparison = record["new_ids"], run.comparison()
    wanted = {
        "prompt_ids": run.tokenizer.encode(record["prompt"])[:-1],
        "prompt_unknown": run.tokenizer.count_unknown(record["prompt"]),
        "new_text": run.tokenizer.decode(new),
    }
    wanted["text"] = run.tokenizer.decode(wanted["prompt_ids"] + new)
    comparison.same({key: record.get(key) for key in wanted}, wanted, name)
    result = generate(run.model, wanted["prompt_ids"], len(new), policy, forced=new)
    comparison.same(record["stopped"], result.stopped, f"{name}.stopped")
    comparison.same(new, result.new_ids, f"{name}.new_ids")
    for place, id_ in enumerate(new):
        logits = result.logits[place]
        chances = next_distribution(logits, policy)
        is_near = logits[id_] >= logits[chances > 0].min() - RETRAINED
        if not is_near or (id_ in (UNK_ID, BOS_ID) and not policy.raw):
            raise mismatch(f"{name}.new_ids[{place}]", id_, int(chances.argmax()))
    return "each token judged by its logits, for here another is chosen at some place"


def summaries_agree(run):
    """Derive each registered checkpoint summary again."""
    comparison, names = Comparison(exact=True, tolerance=0.0), []
    for name, record in run.of_kind("course checkpoint summary 1").items():
        again = checkpoint_summary(run.checkpoint, sha256_file(run.folder / CHECKPOINT_NAME))
        comparison.same(record, again, name)
        names.append(name)
    if not names:
        return Found("checkpoint summaries", not_run="none is registered")
    return Found(f"{', '.join(names)} with the checkpoint", comparison.count)


def earlier_verifications(run):
    """Check that each earlier verification record passed, and was of these very files."""
    count, names = 0, []
    for name, record in run.of_kind("course verification 1").items():
        check_record(record, name)
        if not record["passed"]:
            raise mismatch(f"{name}.passed", False, True)
        for file, digest in record["files"].items():
            if part(run.manifest["files"].get(file), "sha256") != digest:
                raise mismatch(
                    f"{name}: the {file} it is about",
                    digest,
                    part(run.manifest["files"].get(file), "sha256"),
                    repair=f"make it again: python -m course_lib.verify {run.folder} "
                    f"--output {run.folder / name}",
                )
            count += 1
        names.append(name)
    if not names:
        return Found("earlier verification records", not_run="none is registered")
    return Found(f"{', '.join(names)}: of the files that are here now", count)
