"""Make again everything that is recorded: python -m book.refresh

In order: the reference run with its evaluations and texts, its verification and its
report, the record of it under book/, the stored measurements, the pictures, every
notebook, the site. It stops at the first step that fails. Run it after a change of the
library, the data or a pinned version, and read the difference before keeping it.
"""

import sys

from book import build, execute, notebooks, reference

EVALUATE = (
    "-m course_lib.evaluate --checkpoint runs/reference/checkpoint.pt --split {split} "
    "--batch-size 8 --threads 1 --output runs/reference/{split}.json"
)
GENERATE = (
    "-m course_lib.generate --checkpoint runs/reference/checkpoint.pt --prompt {prompt} "
    "--max-new-tokens 60 --temperature 0 --threads 1 --output runs/reference/{name}.json"
)
VERIFY = "-m course_lib.verify runs/reference --retrain --output runs/reference/verification.json"
REPORT = "-m course_lib.report runs/reference --output runs/reference/report.md"
COMMANDS = (
    EVALUATE.format(split="test").split(),
    EVALUATE.format(split="validation").split(),
    GENERATE.format(prompt="小禾", name="greedy").split(),
    [*GENERATE.format(prompt="小禾", name="repetition").split(), "--ignore-eos"],
    GENERATE.format(prompt="早上拉开窗帘，外", name="memory").split(),
    VERIFY.split(),
    REPORT.split(),
    ["-m", "book.record"],
    ["-m", "book.measurements"],
    ["-m", "book.pictures"],
)


def main():
    code = reference.train()
    for command in COMMANDS:
        code = code or reference.run_course(command)
    return code or execute.main([]) or build.main()


if __name__ == "__main__":
    notebooks.take_no_options("book.refresh", __doc__)
    sys.exit(main())
