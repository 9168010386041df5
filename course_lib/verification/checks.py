"""A run folder verified: every claim derived again, in a fixed order (chapter 12).

Each check has a name.  The first that does not hold ends the verification under that name;
one that had nothing to compare says so and is not counted as passed.
"""

from dataclasses import asdict, dataclass
from typing import Callable

import torch

from course_lib.checkpointing import (
    STATE_FIELDS,
    load_checkpoint,
    training_state_digest,
    weights_digest,
)
from course_lib.errors import CourseError, VerificationError
from course_lib.files import digest
from course_lib.manifest import CHECKPOINT_NAME, environment, run_manifest, source_record
from course_lib.model import parameter_count
from course_lib.tokenizer import SPECIAL_NAMES
from course_lib.verification import acceptance, replaying, reporting, rescoring
from course_lib.verification.claims import (
    Comparison,
    Found,
    RunFolder,
    changed_sources,
    find_corpora,
    mismatch,
    random_streams_kept,
    what_differs,
)
from course_lib.verification.inventory import check_files, check_names, read_manifest

KIND = "course verification 1"
DOCUMENTS = (KIND, reporting.KIND)  # results that are about the others
DERIVED = (
    *DOCUMENTS,
    "course evaluation 1",
    "course generation 1",
    "course checkpoint summary 1",
)
FIELD_OF = {"learning_rate": "lr"}  # the option that sets a field, where the names differ


def manifest_is_whole(run):
    """Check the manifest's form, its own digest, and that its parts do not contradict it."""
    run.manifest = manifest = read_manifest(run.folder)
    identity, files = manifest["identity"], manifest["source"]["files"]
    pairs = {
        "digest": (manifest["digest"], digest(identity)),
        "data.digest": (manifest["data"]["digest"], identity["data"]),
        "vocabulary.digest": (manifest["vocabulary"]["digest"], identity["vocabulary"]),
        "source.digest": (manifest["source"]["digest"], identity["source"]),
        "source.files": (digest(files), manifest["source"]["digest"]),
        "command.threads": (
            manifest["command"].get("threads"),
            manifest["environment"].get("threads"),
        ),
    }
    options = {**identity["config"], **identity["settings"], "kernels": identity["kernels"]}
    for field, value in options.items():
        typed = manifest["command"].get(FIELD_OF.get(field, field))
        if typed is not None:  # an option that was left out is the checkpoint's or the default
            pairs[f"command.{FIELD_OF.get(field, field)}"] = typed, value
    for name, (claimed, found) in pairs.items():
        if claimed != found:
            raise mismatch(f"the manifest's {name}", claimed, found)
    return Found("its form, its digest, and each part with the others", len(pairs))


def names_stay_inside(run):
    """Check every listed name before any listed file is opened."""
    check_names(run.manifest["files"])
    return Found("listed names, each once, each a path inside the folder", len(own_files(run)))


def own_files(run):
    """Return the SHA-256 of each listed file, but for those that are about the others."""
    return {
        name: entry["sha256"]
        for name, entry in run.manifest["files"].items()
        if entry.get("kind") not in DOCUMENTS
    }


def files_are_listed(run):
    """Check each file's SHA-256, and that none is missing, unlisted or of another format."""
    check_files(run.folder, run.manifest, run.replacing)
    others = reporting.read_records(run)
    entries = run.manifest["files"]
    for name in others:
        if entries[name]["kind"] in DERIVED and entries[name]["kind"] != reporting.KIND:
            raise mismatch(f"the kind of {name}", entries[name]["kind"], "not a JSON file")
    unknown = [
        f"{name} ({entries[name]['kind']})"
        for name in (*run.records, *others)
        if entries[name]["kind"] not in DERIVED
    ]
    return Found(
        "files of the run and its results, each with its SHA-256; none missing or unlisted",
        len(own_files(run)),
        warning=f"no check derives {', '.join(unknown)} again: its content is only registered"
        if unknown
        else None,
    )


def checkpoint_agrees(run):
    """Check that the checkpoint is whole and says what the manifest says."""
    saved = load_checkpoint(run.folder / CHECKPOINT_NAME)
    manifest = run.manifest
    again = run_manifest(
        saved,
        source=manifest["source"],
        command=manifest["command"],
        resumed_from=manifest["resumed_from"],
    )
    comparison = Comparison(exact=True, tolerance=0.0)  # the same numbers, written twice
    for name in ("format", "identity", "data", "vocabulary", "environment", "evaluations"):
        comparison.same(manifest[name], again[name], f"the manifest's {name}")
    comparison.same(saved["source"]["digest"], manifest["source"]["digest"], "source.digest")
    run.use(saved)
    return Found("the manifest with the checkpoint: identity, data, evaluations", comparison.count)


def weights_are_listed(run):
    """Check the digest of the weights, and their number against the parameter ledger."""
    claimed, weights = run.manifest["weights"], run.checkpoint["model"]
    if claimed["digest"] != weights_digest(weights):
        raise mismatch("the weights' digest", claimed["digest"], weights_digest(weights))
    counted, ledger = sum(one.numel() for one in weights.values()), parameter_count(run.config)
    for name, count in (("parameters", claimed["parameters"]), ("numbers saved", counted)):
        if count != ledger:
            raise mismatch(f"the number of {name}", count, ledger)
    return Found("parameters: digest over every bit, number by the ledger", counted)


def state_is_listed(run):
    """Check the digest of the whole training state."""
    claimed = run.manifest["training_state"]
    found = training_state_digest(run.checkpoint)
    if found is None or claimed["digest"] != found:
        raise mismatch("the training state's digest", claimed["digest"], found or "incomplete")
    parts = claimed["parts"]
    if parts != list(STATE_FIELDS):
        raise mismatch("the training state's parts", parts, list(STATE_FIELDS))
    return Found(f"parts of the training state: {', '.join(parts)}", len(parts))


def platform_is_known(run):
    """Say what is not as it was; that decides how numbers are compared from here on."""
    differences = what_differs(run.manifest)
    run.differences += differences
    count = len(environment(1))
    if differences:
        return Found("where the run was made, with here", count, warning="; ".join(differences))
    return Found("where the run was made, with here: nothing differs", count)


def source_is_known(run):
    """Say which source files are not as they were; only --strict makes this a failure."""
    changed, files = changed_sources(run.manifest), run.manifest["source"]["files"]
    if not changed:
        return Found("source files of course_lib: none has changed", len(files))
    run.differences.append("the source of course_lib has changed")
    shown = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    return Found(
        "source files of course_lib with those of the run",
        len(files),
        warning=f"changed since: {shown}. The numbers are derived by another source than the "
        "run's: they are checked, that source is not",
    )


def data_is_the_run_s(run):
    """Check the corpus against the manifest: digest over id, split and text; ids by split."""
    find_corpora(run)
    named, here = run.manifest["data"], run.corpus
    if named["name"] != here.name:
        raise mismatch("data.name", named["name"], here.name)
    for split, ids in named["documents"].items():
        if ids != list(here.splits[split]):
            raise mismatch(f"data.documents.{split}", ids, list(here.splits[split]))
    return Found(f"documents of {here.name}: digest, ids and splits", len(here.documents))


def vocabulary_is_of_training(run):
    """Fit the vocabulary again, on the training texts and on nothing else."""
    train = set(run.corpus.splits["train"])
    texts = [one.text for one in run.corpus.documents if one.id in train]
    entries = [*SPECIAL_NAMES, *sorted({character for text in texts for character in text})]
    claimed = run.checkpoint["vocabulary"]["entries"]
    if claimed != entries:
        strays = [entry for entry in claimed if entry not in entries]
        raise VerificationError(
            "the vocabulary is not that of the training texts.",
            expected=f"{len(entries)} entries",
            got=f"{len(claimed)} entries; not in any training text: {strays[:10]}",
            repair="fit it on the training texts only, and train again",
        )
    if run.manifest["vocabulary"]["size"] != len(entries):
        raise mismatch("vocabulary.size", run.manifest["vocabulary"]["size"], len(entries))
    return Found("vocabulary entries, fitted again on the training texts only", len(entries))


def reports_are_current(run):
    """Fill each report's marked fields again from the records of this folder."""
    files = run.manifest["files"]
    names = [name for name, entry in files.items() if entry.get("kind") == reporting.KIND]
    if not names:
        return Found("reports", not_run="none is registered: python -m course_lib.report")
    if run.replacing:
        return Found("reports", not_run="they quote the record that is being made anew")
    count = sum(reporting.check_report(run, name) for name in names)
    return Found(f"fields of {', '.join(names)}, filled again from the records", count)


@dataclass(frozen=True)
class Check:
    """One check: a name, the function that makes it, and whether it is a threshold."""

    name: str
    function: Callable
    is_threshold: bool = False


CHECKS = (
    Check("manifest", manifest_is_whole),
    Check("paths", names_stay_inside),
    Check("files", files_are_listed),
    Check("checkpoint", checkpoint_agrees),
    Check("weights", weights_are_listed),
    Check("training-state", state_is_listed),
    Check("belongs", acceptance.belongs, True),
    Check("platform", platform_is_known),
    Check("source", source_is_known),
    Check("data", data_is_the_run_s),
    Check("vocabulary", vocabulary_is_of_training),
    Check("test-in-training", acceptance.no_test_in_training, True),
    Check("causal-leak", acceptance.no_causal_leak, True),
    Check("targets", acceptance.targets_right, True),
    Check("resume-exact", acceptance.resume_exact, True),
    Check("metrics", rescoring.metrics_agree),
    Check("losses", rescoring.losses_scored),
    Check("evaluations", rescoring.evaluations_scored),
    Check("generations", rescoring.generations_replayed),
    Check("summaries", rescoring.summaries_agree),
    Check("verifications", rescoring.earlier_verifications),
    Check("last-steps", replaying.last_steps_replayed),
    Check("retrain", replaying.trained_again),
    Check("reports", reports_are_current),
)


def verify(folder, *, data=(), strict=False, retrain=False, replacing=None, tell=None):
    """Derive every claim of a run folder again.

    Args:
        folder: path of the run folder; nothing in it is changed.
        data: corpus folders to look in, besides the one that the manifest names.
        strict: whether a warning is a failure.
        retrain: whether to train again from the manifest alone.
        replacing: name of a result that is about to be made anew: it is not looked at.
        tell: called with the row of each check when it is done.

    Returns:
        The verification record: a dictionary of plain values; the appendix "JSON fields"
        describes each.

    Raises:
        VerificationError: for the first check that does not hold; its `check` says which.

    Source: chapter 12.
    """
    run, rows = RunFolder(folder, data, replacing), []
    with random_streams_kept():
        for check in CHECKS:
            if check.name == "retrain" and not retrain:
                found = Found("the whole run", not_run="give --retrain to train again")
            else:
                found = outcome_of(check, run, strict)
            row = {
                "name": check.name,
                "threshold": check.is_threshold,
                "outcome": found.outcome,
                **asdict(found),
            }
            rows.append(row)
            if tell:
                tell(row)
    return record(run, rows)


def outcome_of(check, run, strict):
    """Make one check; every error it ends in carries its name."""
    try:
        found = check.function(run)
        if not found.count and not found.not_run:
            raise VerificationError(f"{found.compared}: there was nothing to compare.")
        if found.warning and strict:
            raise VerificationError(f"{found.warning}.", repair="leave out --strict to go on")
    except CourseError as error:
        failure = VerificationError(
            f"{check.name}: {error.what}",
            expected=error.expected,
            got=error.got,
            repair=error.repair,
        )
        failure.check = check.name
        raise failure from error
    return found


def record(run, rows):
    """Return the verification record of a run all of whose checks passed."""
    manifest = run.manifest
    passed = [row for row in rows if row["outcome"] == "passed"]
    exact = not run.differences
    return {
        "format": KIND,
        "passed": True,
        "run": manifest["digest"],
        "comparison": {
            "exact": exact,
            "because": run.differences or ["nothing differs from where the run was made"],
        },
        "checks": rows,
        "counts": {
            "passed": len(passed),
            "not_run": sum(row["outcome"] == "not run" for row in rows),
            "warnings": sum(row["outcome"] == "warning" for row in rows),
            "thresholds": sum(row["threshold"] for row in passed),
            "compared": sum(row["count"] for row in rows),
        },
        "files": own_files(run),
        "checkpoint": {
            "sha256": manifest["files"][CHECKPOINT_NAME]["sha256"],
            "step": run.checkpoint["step"],
        },
        "weights": {"digest": manifest["weights"]["digest"]},
        "data": {"name": manifest["data"]["name"], "digest": manifest["data"]["digest"]},
        "source": {"digest": source_record()["digest"]},
        "environment": environment(torch.get_num_threads()),
    }
