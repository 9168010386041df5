"""Count the characters of a corpus folder, and check the targets of daily24.

    python data/count.py [FOLDER] [--write-checksums]

FOLDER holds documents.jsonl, splits.json and card.json; without it, the folder of this
script is read. The exit status is 1 if anything is wrong, otherwise 0.
"""
import argparse
import hashlib
import json
import sys
from pathlib import Path

FILES = ("card.json", "documents.jsonl", "splits.json")
SPLITS = ("train", "validation", "test")
SPECIALS = ("UNK", "BOS", "EOS")
# daily24 only: vocabulary size, and documents, characters, unknown characters of each split.
TARGETS = {"vocabulary": 385, "train": (18, 1344, 0), "validation": (3, 236, 31),
           "test": (3, 228, 40)}


def read_folder(folder):
    """Return the card, the texts by id in file order, and the splits."""
    card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    splits = json.loads((folder / "splits.json").read_text(encoding="utf-8"))
    texts = {}
    with open(folder / "documents.jsonl", encoding="utf-8") as lines:
        for row in (json.loads(line) for line in lines if line.strip()):
            if row["id"] in texts:
                raise ValueError(f"the id {row['id']} is used twice")
            texts[row["id"]] = row["text"].replace("\r\n", "\n").replace("\r", "\n")
    if sorted(doc for split in SPLITS for doc in splits[split]) != sorted(texts):
        raise ValueError("splits.json must place every document exactly once")
    return card, texts, splits


def repeated(texts):
    """Return pairs of ids whose texts are equal once white space is normalised."""
    first, pairs = {}, []
    for doc, text in texts.items():
        original = first.setdefault(" ".join(text.split()), doc)
        if original != doc:
            pairs.append((original, doc))
    return pairs


def checksums(folder):
    """Return what checksums.json must hold: the SHA-256 of each file's bytes."""
    return {"files": {name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
                      for name in FILES}}


def report(card, texts, splits):
    """Print the counts; return a list of sentences, one for each thing that is wrong."""
    known = set("".join(texts[doc] for doc in splits["train"]))
    found = {"vocabulary": len(SPECIALS) + len(known)}
    print(f"corpus {card['name']}: {len(texts)} documents")
    print(f"vocabulary {found['vocabulary']}: {len(SPECIALS)} special, {len(known)} characters")
    for split in SPLITS:
        unknown = {doc: [c for c in texts[doc] if c not in known] for doc in splits[split]}
        total, missing = sum(len(texts[doc]) for doc in unknown), sum(map(len, unknown.values()))
        found[split] = (len(unknown), total, missing)
        print(f"{split}: {len(unknown)} documents, {total} characters, {missing} unknown "
              f"({100 * missing / max(total, 1):.2f} %)")
        if split != "train":
            for doc, characters in unknown.items():
                print(f"  {doc}: {len(texts[doc])} characters, {len(characters)} unknown: "
                      + " ".join(characters))
    pairs = repeated(texts)
    print("repeated texts:", ", ".join(f"{a} = {b}" for a, b in pairs) or "none")
    problems = [f"{b} repeats the text of {a}" for a, b in pairs]
    if card["name"] == "daily24":
        problems += [f"{key}: found {found[key]}, must be {wanted}"
                     for key, wanted in TARGETS.items() if found[key] != wanted]
    return problems


def main():
    sys.stdout.reconfigure(encoding="utf-8")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--write-checksums", action="store_true", help="rewrite checksums.json")
    args = parser.parse_args()
    path = args.folder / "checksums.json"
    try:
        problems = report(*read_folder(args.folder))
        if args.write_checksums:
            line = json.dumps(checksums(args.folder), indent=2, sort_keys=True) + "\n"
            path.write_bytes(line.encode("utf-8"))
        if not path.exists():
            print("checksums: none written")
        elif json.loads(path.read_text(encoding="utf-8")) == checksums(args.folder):
            print("checksums: match")
        else:
            problems.append("checksums.json does not match the files")
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.exit(f"Cannot count {args.folder}: {error}.")
    if problems:
        sys.exit("Targets missed: " + "; ".join(problems) + ".")


if __name__ == "__main__":
    main()
