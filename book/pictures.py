"""Draw the cover and the map of the chapters: python -m book.pictures

The cover shows the attention weights of the trained reference model over the first
window of the first training document. Needs runs/reference (make book).
"""

import sys

import matplotlib
import torch

from book import notebooks, reference
from course_lib.attention import attention_scores, attention_weights, causal_mask, split_heads
from course_lib.checkpointing import load_checkpoint, load_model
from course_lib.documents import load_corpus
from course_lib.plotting import bookfigs
from course_lib.tokenizer import CharTokenizer

TARGET = "book/generated"
THEMES = ("light", "dark")
LANES = ("text and evidence", "the machine")
# number, title, (column, row) in the picture, the chapters it builds on
CHAPTERS = (
    (1, "Text", (0, 0), ()),
    (2, "Target", (0, 1), (1,)),
    (3, "Attention", (1, 1), (2,)),
    (4, "Heads, mask", (1, 2), (3,)),
    (5, "Block", (1, 3), (4,)),
    (6, "Gradients", (0, 4), (2, 5)),
    (7, "Decoder", (1, 5), (5, 6)),
    (8, "Training", (0, 6), (6, 7)),
    (9, "Evaluation", (0, 7), (8,)),
    (10, "KV cache", (1, 7), (7, 9)),
    (11, "Experiments", (1, 8), (9, 10)),
    (12, "Delivery", (0, 9), (9, 11)),
)


def first_window(root=notebooks.ROOT):
    """Return the attention weights ``[h,T,T]`` of the first block, and the characters."""
    checkpoint = load_checkpoint(root / reference.FOLDER / "checkpoint.pt")
    model, tokenizer = load_model(checkpoint), CharTokenizer.from_dict(checkpoint["vocabulary"])
    text = load_corpus().texts("train")[0][: model.config.block_size - 1]
    tokens = torch.tensor([tokenizer.encode(text)[:-1]])
    block = model.blocks[0]
    with torch.no_grad():
        hidden = block.ln_attention(model.embed(tokens))
        attention = block.attention
        queries = split_heads(attention.q_proj(hidden), model.config.n_heads)
        keys = split_heads(attention.k_proj(hidden), model.config.n_heads)
        T = tokens.shape[1]
        weights = attention_weights(attention_scores(queries, keys), causal_mask(T, T))
    # BOS stands at position 0 and has no sign of its own.
    return weights[0, :, 1:, 1:], list(text)


def save(figure, path):
    """Write an SVG that is the same bytes each time."""
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": path.stem}):
        figure.savefig(path, metadata={"Date": None, "Creator": None}, transparent=True)
    bookfigs.plt.close(figure)


def main(root=notebooks.ROOT):
    weights, characters = first_window(root)
    for theme in THEMES:
        save(bookfigs.cover(weights, characters, theme), root / TARGET / f"cover_{theme}.svg")
        save(bookfigs.course_map(CHAPTERS, LANES, theme), root / TARGET / f"map_{theme}.svg")
    print(f"{TARGET}: cover and map, light and dark")
    return 0


if __name__ == "__main__":
    notebooks.take_no_options("book.pictures", __doc__)
    sys.exit(main())
