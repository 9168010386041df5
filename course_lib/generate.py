"""Continue a prompt with a trained model: ``python -m course_lib.generate``."""

import sys

from course_lib import manifest
from course_lib.checkpointing import load_checkpoint, load_model
from course_lib.command import (
    add_threads,
    as_text,
    make_parser,
    natural_int,
    positive_int,
    run,
    use_threads,
)
from course_lib.files import sha256_file
from course_lib.generation import DecodingPolicy, continue_text
from course_lib.tokenizer import CharTokenizer

KIND = "course generation 1"


def parse(arguments):
    """Return the options of the command."""
    parser = make_parser(
        "course_lib.generate",
        "Continue a prompt, one character at a time, until the end of text or --max-new-tokens.",
        "python -m course_lib.generate --checkpoint runs/my-model/checkpoint.pt --prompt 小禾",
    )
    add = parser.add_argument
    add("--checkpoint", required=True, metavar="FILE", help="a checkpoint.pt")
    add("--prompt", default="", metavar="TEXT", help="text to continue (default: begin a text)")
    add("--max-new-tokens", type=natural_int, default=60, metavar="N", help="at most (default 60)")
    add(
        "--temperature",
        type=float,
        default=0.0,
        metavar="X",
        help="0 takes the most likely character (default); above 0 draws, wilder as it grows",
    )
    add(
        "--top-k",
        type=positive_int,
        metavar="K",
        help="draw among the K most likely only; has no effect at temperature 0",
    )
    add(
        "--top-p",
        type=float,
        metavar="P",
        help="draw among the most likely whose probabilities reach P only; no effect at temperature 0",
    )
    add("--seed", type=natural_int, default=7, metavar="N", help="of the draws (default 7)")
    add(
        "--slide",
        type=positive_int,
        default=1,
        metavar="N",
        help="how far the window moves once the context is full (default 1)",
    )
    add("--ignore-eos", action="store_true", help="go on after the end of text")
    add(
        "--raw",
        action="store_true",
        help="allow BOS and UNK as the model gives them (default: they are never chosen)",
    )
    add("--no-cache", action="store_true", help="encode the whole window for each character")
    add("--output", metavar="FILE", help="write the record as JSON")
    add_threads(parser)
    return parser.parse_args(arguments)


def main(arguments):
    """Run the command; return its exit code."""
    options = parse(arguments)
    use_threads(options.threads)
    policy = DecodingPolicy(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        seed=options.seed,
        ignore_eos=options.ignore_eos,
        raw=options.raw,
        slide=options.slide,
    )
    manifest.check_output(options.output, KIND)
    checkpoint = load_checkpoint(options.checkpoint)
    model, tokenizer = load_model(checkpoint), CharTokenizer.from_dict(checkpoint["vocabulary"])
    prompt = as_text(options.prompt)
    unknown = tokenizer.unknown_characters(prompt)
    if unknown:
        print(
            f"note: the model has never seen {len(unknown)} of the prompt's characters: "
            f"{' '.join(visible(character) for character in sorted(set(unknown)))}",
            file=sys.stderr,
        )
    use_cache = not options.no_cache
    record = continue_text(model, tokenizer, prompt, options.max_new_tokens, policy, use_cache)
    record["checkpoint"] = {"sha256": sha256_file(options.checkpoint), "step": checkpoint["step"]}
    record["environment"] = manifest.environment(options.threads)
    if options.output:
        manifest.write_result(options.output, record, options.checkpoint)
    print(record["text"])
    return 0


def visible(character):
    """Return a character, or its code point where it would not be seen or would do harm."""
    return character if character.isprintable() else f"U+{ord(character):04X}"


if __name__ == "__main__":
    sys.exit(run(main))
