"""Make the font of the figures: python -m book.font NotoSansCJK-Regular.ttc

Takes the characters of the course's documents and Chinese punctuation out of Noto Sans CJK
SC (SIL Open Font Licence 1.1) and writes them to course_lib/fonts/. Run it after a change of
the documents; the full font is not part of the course.
"""

import argparse
import sys

from fontTools import subset
from fontTools.ttLib import TTCollection

from book import notebooks
from course_lib.documents import load_corpus

FAMILY = "Course Sans SC"
FACE = "Noto Sans CJK SC"
OUTPUT = notebooks.ROOT / "course_lib" / "fonts" / "CourseSansSC-Regular.otf"
# CJK punctuation, full-width forms, and the signs that stand for white space and unknowns.
ALWAYS = [*range(0x3000, 0x3020), *range(0xFF01, 0xFF5F), 0x2423, 0x21E5, 0x21B5, 0xFFFD]


def characters():
    """Return the code points the figures need."""
    corpus = load_corpus()
    text = "".join(document.text + document.title for document in corpus.documents)
    return sorted({ord(character) for character in text if ord(character) > 0x7F} | set(ALWAYS))


def make(collection_path):
    """Write the subset of the collection's simplified Chinese face."""
    faces = TTCollection(collection_path).fonts
    face = next(font for font in faces if font["name"].getDebugName(1) == FACE)
    options = subset.Options(layout_features=[], name_IDs=[0, 1, 2, 4, 6, 13, 14], hinting=False)
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=characters())
    cutter.subset(face)
    for record in face["name"].names:
        if record.nameID in (1, 4):
            record.string = FAMILY
        elif record.nameID == 6:
            record.string = FAMILY.replace(" ", "") + "-Regular"
    OUTPUT.parent.mkdir(exist_ok=True)
    face.save(OUTPUT)
    return face


def main():
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m book.font", description=__doc__.split("\n")[0])
    parser.add_argument("collection", help="path of NotoSansCJK-Regular.ttc")
    face = make(parser.parse_args().collection)
    print(f"{OUTPUT.name}: {len(face.getGlyphOrder())} glyphs, {OUTPUT.stat().st_size // 1000} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
