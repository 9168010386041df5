"""The marked fields of a report, each made from the records of a run folder (chapter 12).

No number is typed: a field is a function of what the folder holds, and of nothing else, so
that a verification can fill it again.  What is missing is said to be missing, with the
command that makes it.
"""

import shlex

from course_lib.documents import SPLITS

EVALUATION, GENERATION = "course evaluation 1", "course generation 1"
VERIFICATION = "course verification 1"
ABOUT_OTHERS = ("verifications", "reports")  # checks of records that come after
SHORTEST_TEXT = 5  # characters; a shorter text is a failure
LONGEST_REPETITION = 6  # characters taken up by one piece that comes again at once


def row_text(row):
    """Return one check of a verification as a line: outcome, name, count, what was compared."""
    name = f"{row['name']}{' *' if row['threshold'] else ''}"
    line = f"{row['outcome']:<8} {name:<19} {row['count']:>7}  {row['compared']}"
    reason = row["not_run"] or row["warning"]
    return f"{line}: {reason}" if reason else line


def counts_text(counts):
    """Return the counts of a verification as a line."""
    return (
        f"{counts['passed']} checks passed, {counts['warnings']} with a warning, "
        f"{counts['not_run']} not run; {counts['thresholds']} of 5 thresholds (*); "
        f"{counts['compared']:,} values compared"
    )


def task(run):
    """What was trained on what, in one sentence."""
    data, model = run.manifest["data"], run.manifest["identity"]["config"]
    counts = ", ".join(f"{len(data['documents'][split])} {split}" for split in SPLITS)
    return (
        f"Predict the next character. A decoder Transformer of {model['n_layers']} blocks and "
        f"width {model['d_model']} was trained for {run.manifest['identity']['steps']} steps on "
        f"the corpus `{data['name']}` ({counts} documents), from random weights."
    )


def commands(run):
    """The commands that make the run and its results again, to be typed as they stand."""
    steps = run.manifest["identity"]["steps"]  # fewer than were asked for, if it was stopped
    lines = [command_line("train", options_of({**run.manifest["command"], "steps": steps}))]
    lines += [make_again(run, name, record) for name, record in run.records.items()]
    lines = [line for line in lines if line]
    lines += [f"python -m course_lib.verify {shlex.quote(home(run))} --retrain"]
    text = fenced("\n".join(lines), "bash")
    start = run.manifest["resumed_from"]
    if start:
        text += f"\n\nThe run went on from step {start['step']} of an earlier one; "
        text += "training from the start gives the same."
    return text


def home(run):
    """Return the run folder as the training command named it, wherever it lies now."""
    return str(run.manifest["command"].get("output_dir", "RUN")).rstrip("/")


def options_of(values):
    """Return options as words; what was left out or is off stays out."""
    words = []
    for name, value in values.items():
        if value is None or value is False:
            continue
        option = f"--{name.replace('_', '-')}"
        if str(value).startswith("-"):
            words.append(f"{option}={value}")  # on its own it would be read as an option
        else:
            words += [option] if value is True else [option, str(value)]
    return words


def command_line(module, words):
    """Return a command of the course as it is typed."""
    return shlex.join(["python", "-m", f"course_lib.{module}", *words])


def make_again(run, name, record):
    """Return the command that makes a registered record, or None."""
    options = {"checkpoint": f"{home(run)}/checkpoint.pt"}
    if record["format"] == EVALUATION:
        module, options["split"] = "evaluate", record["split"]
        options["batch_size"] = record["batch_size"]
        options["stride"] = record["protocol"]["stride"]
        if record["data"]["digest"] != run.manifest["data"]["digest"]:
            options["data"] = f"FOLDER-OF-{record['data']['name']}"
    elif record["format"] == GENERATION:
        module, policy = "generate", dict(record["policy"])
        options |= {"prompt": record["prompt"], "no_cache": not policy.pop("cache"), **policy}
    elif record["format"] == "course checkpoint summary 1":
        module = "checkpoint"
    else:
        return None
    threads = record.get("environment", run.manifest["environment"]).get("threads")
    options |= {"threads": threads, "output": f"{home(run)}/{name}"}
    return command_line(module, options_of(options))


def configuration(run):
    """Sizes, settings and number of parameters."""
    identity = run.manifest["identity"]
    rows = [*identity["config"].items(), *identity["settings"].items()]
    rows += [("kernels", identity["kernels"]), ("steps", identity["steps"])]
    rows += [("parameters", f"{run.manifest['weights']['parameters']:,}")]
    return table(["part", "value"], rows)


def data(run):
    """Where the texts come from, how they are split, and what may be done with them."""
    named, card = run.manifest["data"], run.corpus.card
    rows = [("corpus", named["name"]), ("digest", f"`{named['digest']}`")]
    for name in ("source", "licence", "language"):
        value = card.get(name)
        rows.append((name, value if isinstance(value, str) else "missing from its card.json"))
    rows += [(split, ", ".join(ids)) for split, ids in named["documents"].items()]
    size = run.manifest["vocabulary"]["size"]
    rows.append(("vocabulary", f"{size} entries, fitted on the training texts only"))
    protocol = run.manifest["identity"]["protocol"]
    rows.append(("protocol", "; ".join(f"{name} {value}" for name, value in protocol.items())))
    return table(["data", ""], rows)


def environment(run):
    """Versions, platform and source."""
    rows = [*run.manifest["environment"].items()]
    rows.append(("source of course_lib", f"`{run.manifest['source']['digest']}`"))
    return table(["where", ""], rows)


def checkpoint(run):
    """The identity of the checkpoint: everything else in the report belongs to it."""
    manifest = run.manifest
    rows = [
        ("run", f"`{manifest['digest']}`"),
        ("step", manifest["identity"]["steps"]),
        ("weights", f"`{manifest['weights']['digest']}`"),
        ("training state", f"`{manifest['training_state']['digest']}`"),
        ("checkpoint.pt", f"`{manifest['files']['checkpoint.pt']['sha256']}`"),
    ]
    return table(["identity", "SHA-256 or number"], rows)


def results(run):
    """Each evaluation with the counting baselines beside it."""
    parts = []
    for split in ("test", "validation"):
        found = [one for one in run.of_kind(EVALUATION).items() if one[1]["split"] == split]
        for name, one in found:
            rows = [("**Transformer**", *score(one))]
            rows += [(row["name"], *score(row)) for row in one["baselines"]]
            parts.append(
                f"{split} (`{name}`): {one['count']} scored targets, {one['unknown']} of "
                f"{one['characters']} characters unknown ({100 * one['unknown_rate']:.2f} %).\n\n"
                + table(["", "nats per token", "perplexity", "bits per token"], rows)
            )
        if not found:
            parts.append(missing(f"a score of the {split} split", evaluate_command(run, split)))
    return "\n\n".join(parts)


def evaluate_command(run, split):
    """Return the command that scores a split of this run."""
    options = {
        "checkpoint": f"{home(run)}/checkpoint.pt",
        "split": split,
        "output": f"{home(run)}/{split}.json",
    }
    return command_line("evaluate", options_of(options))


def score(totals):
    """Return loss, perplexity and bits as cells."""
    shown = "inf" if totals["perplexity"] is None else f"{totals['perplexity']:.1f}"
    return number(totals["loss"]), shown, number(totals["bits_per_character"])


def number(value):
    """Return a float with the digits that hold on every machine."""
    return "none" if value is None else f"{value:.3f}"


def checks(run):
    """The raw output of the verification."""
    words = [home(run), "--output", f"{home(run)}/verification.json"]
    found = run.of_kind(VERIFICATION)
    if not found:
        return missing("the record of the correctness checks", command_line("verify", words))
    parts = []
    for name, one in found.items():
        rows = [row for row in one["checks"] if row["name"] not in ABOUT_OTHERS]
        lines = "\n".join(map(row_text, rows))
        reasons = "; ".join(one["comparison"]["because"])
        rule = "bit for bit" if one["comparison"]["exact"] else "within a tolerance"
        parts.append(f"`{name}`: numbers compared {rule} ({reasons}).\n\n{fenced(lines, 'text')}")
    return "\n\n".join(parts)


def training(run):
    """The losses of the whole pools during training."""
    rows = [
        (row["step"], number(row["train_loss"]), number(row["validation_loss"]))
        for row in run.manifest["evaluations"]
    ]
    return table(["step", "train, nats per token", "validation, nats per token"], rows)


def evaluation(run):
    """What each evaluation is made of: kinds of targets, documents."""
    parts = []
    for name, one in run.of_kind(EVALUATION).items():
        rows = [
            (who, *(number(part["loss"]) for part in kinds.values()))
            for who, kinds in [
                ("**Transformer**", one["kinds"]),
                *((row["name"], row["kinds"]) for row in one["baselines"]),
            ]
        ]
        heads = [
            f"{kind.replace('_', ' ')} ({part['count']})" for kind, part in one["kinds"].items()
        ]
        documents = [
            (row["id"], row["count"], row["unknown"], number(row["loss"]))
            for row in one["documents"]
        ]
        parts.append(
            f"`{name}`, {one['split']}, nats per token by kind of target:\n\n"
            + table(["", *heads], rows)
            + "\n\nBy document:\n\n"
            + table(["document", "targets", "unknown", "nats per token"], documents)
        )
    return "\n\n".join(parts) or missing("every evaluation", evaluate_command(run, "test"))


def samples(run):
    """Texts as they came, told apart by a rule that looks at form only."""
    groups = {"Success": [], "Failure": []}
    for name, one in run.of_kind(GENERATION).items():
        faults = faults_of(one["new_text"])
        verdict = "; ".join(faults) or f"at least {SHORTEST_TEXT} characters, no repetition"
        copied = longest_copy(one["new_text"], run.corpus.texts("train"))
        policy = ", ".join(f"{key} {value}" for key, value in one["policy"].items())
        groups["Failure" if faults else "Success"].append(
            f"`{name}`, prompt {shown(one['prompt'])}, stopped by {one['stopped']}; {verdict}. "
            f"Of its {len(one['new_text'])} new characters, {len(copied)} in a row stand in a "
            f"training text.\n\n{fenced(one['text'], 'text')}\n\nPolicy: {policy}."
        )
    return "\n\n".join(
        f"**{name}**\n\n" + ("\n\n".join(found) or no_sample(run, name))
        for name, found in groups.items()
    )


def no_sample(run, group):
    """Return words for a group of samples that is empty, with a command that may fill it."""
    options = {
        "checkpoint": f"{home(run)}/checkpoint.pt",
        "prompt": "TEXT",
        "ignore_eos": group == "Failure",
        "output": f"{home(run)}/{group.lower()}.json",
    }
    return missing(f"a sample of {group.lower()}", command_line("generate", options_of(options)))


def faults_of(text):
    """Return what is wrong with the form of a text, one phrase each; [] for nothing."""
    faults = []
    if len(text) < SHORTEST_TEXT:
        faults.append(f"it ends after {len(text)} characters")
    piece, times = longest_repetition(text)
    if len(piece) * times >= LONGEST_REPETITION:
        faults.append(f"it says {shown(piece)} {times} times in a row")
    return faults


def longest_repetition(text):
    """Return (piece, times): what fills most of `text` by coming again at once."""
    best = ("", 0)
    for start in range(len(text)):
        for length in range(1, (len(text) - start) // 2 + 1):
            piece, times = text[start : start + length], 1
            while text.startswith(piece, start + times * length):
                times += 1
            if times > 1 and times * length > len(best[0]) * best[1]:
                best = piece, times
    return best


def longest_copy(text, sources):
    """Return the longest piece of `text` that stands in one of the sources."""
    best = ""
    for start in range(len(text)):
        end = start + len(best) + 1
        while end <= len(text) and any(text[start:end] in source for source in sources):
            best, end = text[start:end], end + 1
    return best


def missing(what, command):
    """Return words for a value that the folder does not hold."""
    return f"*Missing from this run: {what}.* It is made by\n\n{fenced(command, 'bash')}"


def shown(text):
    """Return a short text as a piece of code that no Markdown can change."""
    return f"`{cell(repr(text)[1:-1])}`" if text else "(empty)"


def cell(value):
    """Return a value as it may stand in a table."""
    return str(value).replace("|", "\\|").replace("\n", " ").replace("`" * 3, "'''")


def table(heads, rows):
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell(one) for one in line) + " |" for line in lines)


def fenced(text, language):
    """Return a block of code, its fence longer than any that stands in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


FIELDS = {
    "task": task,
    "commands": commands,
    "configuration": configuration,
    "data": data,
    "environment": environment,
    "checkpoint": checkpoint,
    "results": results,
    "checks": checks,
    "training": training,
    "evaluation": evaluation,
    "samples": samples,
}
