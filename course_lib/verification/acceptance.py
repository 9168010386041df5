"""The five thresholds that no other mark can make up for (chapter 12).

No causal leak, no mislabelled target, no test data in training, an exact resume, and
results that belong to this checkpoint.  Each is decided by a check on the run folder
itself, and each derives what it can by a way of its own instead of asking the library.
"""

import io
import unicodedata

import torch

from course_lib.checkpointing import make_checkpoint, restore_trainer, state_digest
from course_lib.documents import SPLITS
from course_lib.errors import VerificationError
from course_lib.files import sha256_file
from course_lib.losses import IGNORED, evaluation_mode
from course_lib.manifest import CHECKPOINT_NAME
from course_lib.tokenizer import BOS_ID, EOS_ID, UNK_ID
from course_lib.verification.claims import RETRAINED, Found, mismatch
from course_lib.windows import PADDING_ID, document_windows, stack_windows

FIRST_STEPS = 5  # of the run, taken again from its seed
RESUMED_STEPS = 6  # taken in one go, and with an interruption in the middle
SHORTEST_COPY = 10  # characters of a text that must not stand inside another
PROBED_POSITIONS = 64  # at most, for the gradient
ABOUT_OTHERS = ("course verification 1", "course report 1")
LEAK = 1e-5  # largest difference of two logits that the same prefix may show, float32


def belongs(run):
    """Check that each registered result was made from these weights and this file.

    Source: chapter 12.
    """
    weights, file = run.manifest["weights"]["digest"], sha256_file(run.folder / CHECKPOINT_NAME)
    count = 0
    for name, entry in run.manifest["files"].items():
        if "kind" not in entry or name == run.replacing:
            continue
        is_result = entry["kind"] not in ABOUT_OTHERS  # the others are checked, not counted
        named = {"the manifest's entry": entry["weights"]}
        if name in run.records:
            record = run.records[name]
            named[f"{name} itself"] = part(record, "weights", "digest")
            for parts in (("checkpoint", "sha256"), ("file", "sha256")):
                if parts[0] in record and part(record, *parts) != file:
                    raise mismatch(f"{name}: {'.'.join(parts)}", part(record, *parts), file)
                count += is_result and parts[0] in record
        elif weights not in (run.folder / name).read_text("utf-8", errors="replace"):
            raise mismatch(f"{name}: the weights it names", "others, or none", weights)
        for who, digest in named.items():
            if digest != weights:
                raise mismatch(
                    f"{name} is not of this checkpoint: the weights that {who} names",
                    digest,
                    weights,
                    repair="make the result again from this folder's checkpoint.pt",
                )
            count += is_result
    if not count:
        return Found("results of this run", not_run="no result is registered in this folder")
    return Found("each registered result names these weights and this checkpoint file", count)


def part(record, *names):
    """Return a part of a record, or None where there is none."""
    for name in names:
        record = record.get(name) if isinstance(record, dict) else None
    return record


def no_test_in_training(run):
    """Check that no validation or test document was trained on, by id and by text.

    Source: chapter 12.
    """
    ids = run.manifest["data"]["documents"]
    shared = set(ids["train"]) & {*ids["validation"], *ids["test"]}
    if shared:
        raise leaked(f"document {sorted(shared)[0]} stands in two splits")
    plain = {name: {one.id: bare(one.text) for one in run.corpus.split(name)} for name in SPLITS}
    owner = {text: id_ for id_, text in plain["train"].items()}
    joined = {name: "\n".join(plain[name].values()) for name in SPLITS}
    for name in ("validation", "test"):
        for id_, text in plain[name].items():
            if text in owner:
                raise leaked(f"the {name} document {id_} has the text of {owner[text]}")
            if len(text) >= SHORTEST_COPY and text in joined["train"]:
                raise leaked(f"the {name} document {id_} stands inside a training document")
        for id_, text in plain["train"].items():
            if len(text) >= SHORTEST_COPY and text in joined[name]:
                raise leaked(f"the training document {id_} stands inside a {name} document")
    scored = sum(len(one.text) + 1 for one in run.corpus.split("train"))
    claimed = {row["train_count"] for row in run.manifest["evaluations"]}
    if claimed - {scored}:
        raise mismatch("the number of training targets", sorted(claimed), scored)
    windows = expected_windows(run, "train", run.manifest["identity"]["protocol"])[0]
    sampler = run.checkpoint["sampler"] or {}
    if sampler and sampler.get("window_count") != len(windows):
        drawn = sampler.get("window_count")
        raise mismatch("the number of windows drawn from", drawn, len(windows))
    count = sum(map(len, plain.values()))
    return Found("ids, texts (white space, marks and case aside) and targets of the splits", count)


def bare(text):
    """Return the letters and digits of a text, in one form: what a near copy shares."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(character for character in folded if character.isalnum()) or folded


def leaked(what):
    """Return the error for a text that is trained on and scored."""
    return VerificationError(
        f"{what}: its score says nothing about unseen texts.",
        repair="keep it in one split, train again, and score anew",
    )


def expected_ids(run, text):
    """Return the ids of a text, from the vocabulary's entries and not from the tokenizer."""
    id_of = {entry: id_ for id_, entry in enumerate(run.checkpoint["vocabulary"]["entries"])}
    return [BOS_ID, *(id_of.get(character, UNK_ID) for character in text), EOS_ID]


def expected_windows(run, split, protocol):
    """Return the rows that the documents of a split make: inputs and targets, as lists."""
    length, stride = protocol["block_size"], protocol["stride"]
    inputs, targets = [], []
    for document in run.corpus.split(split):
        ids = expected_ids(run, document.text)
        for start in range(0, len(ids) - 1, stride):
            before = start - stride + length if start else 0  # scored by an earlier window
            if start and before >= len(ids) - 1:
                break
            row = [PADDING_ID] * length, [IGNORED] * length
            for place in range(min(length, len(ids) - 1 - start)):
                row[0][place] = ids[start + place]
                if start + place >= before:
                    row[1][place] = ids[start + place + 1]
            inputs.append(row[0])
            targets.append(row[1])
    return inputs, targets


def targets_right(run):
    """Check every (input, target) pair, the counts, and that the run's first losses are theirs.

    Source: chapter 12.
    """
    protocol, trainer = run.manifest["identity"]["protocol"], run.new_trainer()
    length = protocol["block_size"]
    test = document_windows(run.corpus.split("test"), run.tokenizer, protocol)
    pools = {
        "train": (trainer.tokens, trainer.targets),
        "validation": trainer.validation_pool,
        "test": stack_windows(test, length),
    }
    pairs = 0
    for split, (tokens, targets) in pools.items():
        inputs, wanted = expected_windows(run, split, protocol)
        for name, rows, here in (("input", inputs, tokens), ("target", wanted, targets)):
            for index, (row, other) in enumerate(zip(rows, here.tolist())):
                if row != other:
                    raise mismatch(f"the {name}s of {split} window {index}", other, row)
            if len(rows) != len(here):
                raise mismatch(f"the number of {split} windows", len(here), len(rows))
        scored = sum(len(one.text) + 1 for one in run.corpus.split(split))
        found = int((targets != IGNORED).sum())
        if found != scored:
            raise mismatch(f"the number of {split} targets", found, scored)
        pairs += found
        for row in run.manifest["evaluations"]:
            if row.get(f"{split}_count", scored) != scored:
                raise mismatch(f"{split}_count in evaluations", row[f"{split}_count"], scored)
    comparison = run.comparison(RETRAINED)
    steps = min(FIRST_STEPS, len(run.checkpoint["losses"]))
    losses = [trainer.train_step() for _ in range(steps)]
    comparison.same(run.checkpoint["losses"][:steps], losses, "the loss of the first steps")
    return Found(
        f"(input, target) pairs from the documents; the first {steps} losses, {comparison.how()}",
        pairs + comparison.count,
    )


def no_causal_leak(run):
    """Check these weights under two futures at every position, and each position's influence.

    Source: chapter 12.
    """
    length, vocab_size = run.config.block_size, run.config.vocab_size
    generator = torch.Generator().manual_seed(7)
    base = torch.randint(vocab_size, (1, length), generator=generator)
    largest, moved = 0.0, 0
    with evaluation_mode(run.model):
        for kept in range(1, length):
            step = torch.randint(1, vocab_size, (2, length), generator=generator)
            futures = base.repeat(2, 1)
            futures[0, kept:] = (base[0, kept:] + step[0, kept:]) % vocab_size
            futures[1, kept:] = (base[0, kept:] + step[1, kept:]) % vocab_size
            logits = run.model(futures)["logits"]
            difference = (logits[0] - logits[1]).abs().amax(dim=-1)
            scale = max(1.0, logits.abs().max().item())
            largest = max(largest, difference[:kept].max().item() / scale)
            moved += not torch.equal(logits[0, kept:], logits[1, kept:])
            if largest > LEAK:
                place = int((difference[:kept] > LEAK * scale).nonzero()[0])
                raise leak(place, f"a logit moved by {difference[place]:.2e} with the future alone")
    if length > 1 and not moved:
        raise VerificationError("the logits do not depend on the tokens: nothing was tested.")
    probed = torch.linspace(0, length - 1, min(length, PROBED_POSITIONS)).long().unique().tolist()
    table = run.model.position_embedding.weight
    for place in probed:
        with torch.enable_grad():
            logits = run.model(base)["logits"][0, place]
            (influence,) = torch.autograd.grad(logits.square().sum(), table)
        later = influence[place + 1 :].abs().amax(dim=-1)
        if later.numel() and later.max() > 0:
            other = place + 1 + int(later.argmax())
            raise leak(place, f"the gradient reaches position {other}: {later.max():.2e}")
        if not influence[place].abs().max() > 0:
            raise VerificationError(f"position {place} has no influence on its own logits.")
    return Found(
        f"two futures at every position (largest difference {largest:.1e}) and the gradient",
        length - 1 + len(probed),
    )


def leak(place, what):
    """Return the error for a position that sees what comes after it."""
    return VerificationError(
        f"the logits at position {place} see the future: {what}.",
        expected="a prefix whose logits no later token changes",
        repair="mend the causal mask, train again; every score of this model is void",
    )


def resume_exact(run):
    """Check that some steps in one go equal the same steps with a save and load between.

    Equality is bit for bit on every machine: both sides are made here.

    Source: chapter 12.
    """
    straight = continued(run, run.checkpoint)
    for _ in range(RESUMED_STEPS):
        straight.train_step()
    one = straight.state_dict()  # before another trainer touches the random stream
    broken, taken = continued(run, run.checkpoint), RESUMED_STEPS // 2
    for _ in range(taken):
        broken.train_step()
    if broken.sampler.position >= broken.sampler.window_count and taken < RESUMED_STEPS - 1:
        broken.train_step()  # at the end of an epoch no order could get lost
        taken += 1
    buffer = io.BytesIO()
    torch.save(as_checkpoint(broken), buffer)
    buffer.seek(0)
    resumed = continued(run, torch.load(buffer, weights_only=True))
    for _ in range(RESUMED_STEPS - taken):
        resumed.train_step()
    two = resumed.state_dict()
    for name in one:
        if state_digest(one[name]) != state_digest(two[name]):
            raise VerificationError(
                f"with a save and load in the middle of {RESUMED_STEPS} steps the {name} "
                "is another.",
                expected=f"SHA-256 {state_digest(one[name])}",
                got=f"SHA-256 {state_digest(two[name])}",
                repair="save and restore the whole training state; see chapter 8",
            )
    return Found(
        f"{RESUMED_STEPS} steps from this checkpoint, straight and resumed: {', '.join(one)}, "
        "bit for bit",
        len(one),
    )


def continued(run, checkpoint):
    """Return a new trainer that stands where a checkpoint was made, its random stream too.

    The stream is global: the caller takes all steps of one trainer before making another.
    """
    trainer = run.new_trainer()
    restore_trainer(trainer, checkpoint)
    return trainer


def as_checkpoint(trainer):
    """Return the checkpoint of a trainer, with nothing said about where it was made."""
    return make_checkpoint(trainer, data_folder=None, source={"digest": ""}, environment={})
