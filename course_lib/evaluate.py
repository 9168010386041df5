"""Score a split with a trained model: ``python -m course_lib.evaluate``."""

import sys

from course_lib import manifest
from course_lib.checkpointing import load_checkpoint, load_model
from course_lib.command import (
    add_threads,
    corpus_folder,
    make_parser,
    positive_int,
    run,
    use_threads,
)
from course_lib.documents import SPLITS, load_corpus
from course_lib.evaluation import evaluate
from course_lib.files import sha256_file
from course_lib.tokenizer import CharTokenizer
from course_lib.windows import make_protocol

KIND = "course evaluation 1"


def parse(arguments):
    """Return the options of the command."""
    parser = make_parser(
        "course_lib.evaluate",
        "Score every character and every end of text of one split exactly once, and show the "
        "counting baselines beside the model.",
        "python -m course_lib.evaluate --checkpoint runs/my-model/checkpoint.pt --split test",
    )
    add = parser.add_argument
    add("--checkpoint", required=True, metavar="FILE", help="a checkpoint.pt")
    add(
        "--split",
        choices=SPLITS,
        default="validation",
        help="what to score (default validation; open the test split once, at the end)",
    )
    add("--data", metavar="DIR", help="corpus folder (default: the one trained on)")
    add(
        "--batch-size",
        type=positive_int,
        default=8,
        metavar="B",
        help="windows fed at a time (default 8); the result does not depend on it",
    )
    add(
        "--stride",
        type=positive_int,
        metavar="S",
        help="targets from one window to the next (default: the block size); another stride is "
        "another protocol",
    )
    add("--output", metavar="FILE", help="write the record as JSON")
    add_threads(parser)
    return parser.parse_args(arguments)


def main(arguments):
    """Run the command; return its exit code."""
    options = parse(arguments)
    use_threads(options.threads)
    manifest.check_output(options.output, KIND)
    checkpoint = load_checkpoint(options.checkpoint)
    corpus = load_corpus(corpus_folder(options.data, checkpoint))
    if corpus.digest != checkpoint["data"]["digest"]:
        print(
            f"warning: this {corpus.name} is not the corpus the model was trained on: "
            f"digest {corpus.digest[:12]}..., not {checkpoint['data']['name']} with "
            f"{checkpoint['data']['digest'][:12]}...",
            file=sys.stderr,
        )
    tokenizer = CharTokenizer.from_dict(checkpoint["vocabulary"])
    protocol = make_protocol(checkpoint["protocol"]["block_size"], options.stride)
    record = evaluate(
        load_model(checkpoint), corpus, options.split, tokenizer, protocol, options.batch_size
    )
    record["checkpoint"] = {"sha256": sha256_file(options.checkpoint), "step": checkpoint["step"]}
    record["environment"] = manifest.environment(options.threads)
    if options.output:
        manifest.write_result(options.output, record, options.checkpoint)
    print_record(record)
    return 0


def print_record(record):
    """Print the headline with the baselines beside it."""
    print(
        f"{record['split']}: {record['count']} scored tokens ({record['characters']} characters, "
        f"{record['eos']} EOS), {record['unknown']} unknown ({100 * record['unknown_rate']:.2f} %)"
    )
    print("               nats/token   perplexity   bits/token")
    rows = [{"name": "Transformer", **record}, *record["baselines"]]
    for row in rows:
        shown = "inf" if row["perplexity"] is None else f"{row['perplexity']:.1f}"
        print(
            f"  {row['name']:<12} {row['loss']:10.3f}   {shown:>10}   {row['bits_per_character']:10.3f}"
        )
    for name, kind in record["kinds"].items():
        if kind["count"]:
            print(
                f"  {name.replace('_', ' ')}: {kind['count']} tokens, {kind['loss']:.3f} nats each"
            )


if __name__ == "__main__":
    sys.exit(run(main))
