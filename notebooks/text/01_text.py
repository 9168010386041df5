# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 1 Text, characters, ids: what is predicted
#
# **Goal.** Turn documents into numbers, and say exactly what a model will be asked to
# predict. Every score of the later chapters is a score for this task and no other.
#
# **You need** Python functions, lists and dictionaries, and the environment of the
# [set-up](../book/setup.md). You need no mathematics yet, and no Chinese. **Time:** about
# an hour and a half, with the exercises.
#
# **You will write** three functions of `course_lib.tokenizer`: `normalise_text`,
# `CharTokenizer.fit` and `CharTokenizer.encode`.
#
# Letters that hold in the whole book stand in the [table of notation](../book/notation.md).
# Four tools of the workbook are used below. `check("id", f)` puts your function in the
# library's place while it tests it. `planted("id")` breaks the library on purpose until its
# block ends; `FAULTS` lists what can be planted. `compare_guess` tells how far a guess was
# off. `glue` puts a number of a cell into the prose.

# %%
import dataclasses
import json
import math
import random
import unicodedata
from collections import Counter

from IPython.display import Markdown, display
from myst_nb import glue

from course_lib import plotting
from course_lib.documents import Corpus, load_corpus
from course_lib.errors import DataError, InputError
from course_lib.plotting import textfigs as figures
from course_lib.tokenizer import BOS_ID, BYTE_ORDER_MARK, EOS_ID, UNK_ID
from course_lib.tokenizer import CharTokenizer
from course_lib.workbook import FAULTS, check, compare_guess, planted
from course_lib.workbook.checks import CheckFailed

plt = plotting.plt

# %% [markdown]
# ## 1.1 Two programs
#
# Here are two small programs. Each lists the characters that it knows. Then both are asked
# what every model of text has to face: how many characters of a *new* text are strangers to
# it? Three documents of this course, the test texts, were put aside to stand for new texts.
#
# Read the two programs before you look at what they print.

# %%
corpus = load_corpus()
train_texts, test_texts = corpus.texts("train"), corpus.texts("test")


def program_a(train, test):
    """Return the characters that are known."""
    return set("".join(train))


def program_b(train, test):
    """Return the characters that are known."""
    return set("".join(train + test))


def strangers(texts, known):
    """Return how many characters of the texts are not among the known."""
    return sum(character not in known for character in "".join(texts))


# %%
size = len("".join(test_texts))
for program in (program_a, program_b):
    listed = program(train_texts, test_texts)
    unseen = strangers(test_texts, listed)
    print(f"{program.__name__} knows {len(listed)} characters; ", end="")
    print(f"{unseen} of {size} are strangers")

# %% [markdown]
# Both programs run. Neither warns. Program B has the better number, and program B is
# wrong.
#
# Its list was made from the test texts too. Of course they hold no stranger. The zero is a
# true statement about these three texts. It is no answer to the question, which was about
# texts that nobody has seen. Ask both programs about one:
#
# > 小禾在动物园看见一只长颈鹿。 *At the zoo Xiaohe saw a giraffe.*

# %%
sentence = "小禾在动物园看见一只长颈鹿。"
for program in (program_a, program_b):
    listed = program(train_texts, test_texts)
    unseen = [one for one in sentence if one not in listed]
    print(f"{program.__name__}: {len(unseen)} of {len(sentence)}:", *unseen)


# %% [markdown]
# The perfection of B is gone. On this sentence it is no better than A.
#
# No error message tells the two programs apart, and no look at their numbers does. What
# tells them apart is a question put from outside: *what must be true if this is right?* Here
# it is: the list of known characters must not depend on the texts it will be tested with.
# Such a sentence can be turned into a line of Python:

# %%
def keeps_its_list(program):
    """Return whether the list stays the same for other test texts."""
    return program(train_texts, test_texts) == program(train_texts, [sentence])


for program in (program_a, program_b):
    print(f"{program.__name__} keeps its list: {keeps_its_list(program)}")
assert keeps_its_list(program_a) and not keeps_its_list(program_b)

# %% [markdown]
# That is a test, and it has already shown that it can fail. This course asks its question of
# everything it builds, and it answers in three ways:
#
# 1. **Predict.** Say what must come out before you run the cell.
# 2. **Compute it twice.** By hand, or along another path that shares nothing with the first.
# 3. **Plant the fault.** Make the mistake on purpose, and see that a test catches it. A test
#    that has never failed has not shown that it can.
#
# [How to work](../book/how_to_work.md) says more about these habits.

# %% [markdown]
# ## 1.2 The task
#
# The model of this course answers one question, again and again: *given the beginning of a
# document, which character comes next?* When it is trained, it is shown documents and asked
# at every place. When it writes, it is asked, its answer is added to the text, and it is
# asked again.
#
# The documents are Chinese. Three facts are enough to follow them. Chinese is written
# without spaces. A character stands for a syllable, and is a word or a part of a word. And
# 小禾, Xiǎohé, is the name of the girl who appears in many of the documents. Here is how
# the first document begins:

# %%
words = {
    "雨": "rain",
    "下": "falls",
    "得": "so that it is",
    "很": "very",
    "大": "heavy",
    "，": "(comma)",
    "小": "Xiao-",
    "禾": "-he",
}
beginning = "".join(words)
assert corpus.documents[0].text.startswith(beginning)
print("next, in English    given")
for place, character in enumerate(beginning):
    given = beginning[:place] or "(nothing)"
    print(f"{character}  {words[character]:15s} {given}")

# %% [markdown]
# The model does not get the English column. No dictionary tells it what a character means.
# All it can learn is what tends to follow what. Sometimes that says much, sometimes little.
# Here 小 (small, and the first half of 小禾) and 一 (one) are looked up in the training texts.
# What follows most often is 禾, the other half, and 个, a word that stands between a number
# and a thing:

# %%
training_text = "".join(train_texts)
for character in ("小", "一"):
    followers = Counter(
        after
        for before, after in zip(training_text, training_text[1:])
        if before == character
    )
    best, times = followers.most_common(1)[0]
    total = sum(followers.values())
    print(f"{character} is followed {total} times, ", end="")
    print(f"by {len(followers)} characters; {times} times by {best}")

# %% [markdown]
# After 小 one guess is right most of the time. After 一 the best single guess is mostly wrong.
# So a model should not name one character. It should spread its trust over all of them, and
# be judged by how much trust the true one got. Chapter 2 calls this trust a probability and makes a score
# of it.
#
# ### What you will build, and what will be proved
#
# Over twelve chapters you build a decoder Transformer that does this task, character by
# character. Beside each part stands the evidence that it is right:
#
# | claim | chapters |
# | --- | --- |
# | it is clear what is predicted, and each target is counted exactly once | 1, 2, 8 |
# | no prediction can see the future | 4, 7 |
# | the gradients are right, and every parameter moves | 6, 7 |
# | a training that is interrupted goes on bit for bit | 8 |
# | a score does not depend on how texts are batched, and stands beside simple baselines | 9 |
# | the cache changes nothing but the work that is done | 10 |
# | a comparison changes one thing at a time | 11 |
# | somebody else can make the result again | 12 |
#
# One claim is missing on purpose: that the model writes well. It is trained on eighteen
# short documents, and the [reference run](../book/reference_run.md) shows, unpolished, what
# comes of that. The aim is a model you understand and can vouch for.

# %% [markdown]
# ## 1.3 By hand: a corpus of two sentences
#
# Before the real documents, do the whole thing once on paper. The training corpus is
#
# > the cat sat.
# >
# > the hat sat.
#
# **List the characters**, each once, in the order of their numbers in Unicode, the
# standard that gives every character a number. The space comes first, then the full stop,
# then the letters. **Number them from 3**, because three ids are needed for other things:
#
# | id | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 |
# | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
# | stands for | UNK | BOS | EOS | space | . | a | c | e | h | s | t |
#
# - **UNK**, *unknown*, stands for every character that is not in the list.
# - **BOS**, *beginning of sequence*, stands before the first character, so that there is
#   something to predict the first character from.
# - **EOS**, *end of sequence*, stands after the last one, so that the end can be predicted
#   like a character. Otherwise a model would never know how to stop.
#
# **Write the ids.** "the cat sat." is t h e, space, c a t, space, s a t, full stop:
#
# > 1 · 10 8 7 · 3 · 6 5 10 · 3 · 9 5 10 · 4 · 2
#
# Now let a few lines of Python do the same, without the library.

# %%
toy = ["the cat sat.", "the hat sat."]
alphabet = sorted(set("".join(toy)))
id_of = {character: 3 + place for place, character in enumerate(alphabet)}


def encode_by_hand(text):
    """Return BOS, an id for each character, EOS; an unknown one is UNK."""
    ids = [1]
    for character in text:
        ids.append(id_of.get(character, 0))
    return ids + [2]


ids = encode_by_hand("the cat sat.")
print(id_of)
print(ids)
assert ids == [1, 10, 8, 7, 3, 6, 5, 10, 3, 9, 5, 10, 4, 2]

# %% [markdown]
# `id_of.get(character, 0)` looks a character up and gives 0 when it is not there.
#
# ```{admonition} Predict, then run
# :class: predict
# A text that the list has not seen: "the rat ran." How many of its ids are 0?
# ```

# %%
guess = None  # your number

# %%
unseen_ids = encode_by_hand("the rat ran.")
compare_guess(guess, unseen_ids.count(0), "ids")
print(unseen_ids)
assert len(unseen_ids) == len("the rat ran.") + 2

# %% [markdown]
# The strangers are r, which comes twice, and n. Note that each of them keeps its
# *place*. The text has twelve characters, and there are twelve ids between BOS and EOS.
#
# What is predicted from these ids? At every place the next id, given all before it:

# %%
names = ["UNK", "BOS", "EOS", *alphabet]
pairs = [(ids[:place], ids[place]) for place in range(1, len(ids))]
for given, target in pairs[:3] + pairs[-2:]:
    shown = " ".join(names[id_].replace(" ", "␣") for id_ in given)
    print(f"{shown:33s} ->  {names[target]}")
print(f"{len('the cat sat.')} characters, {len(pairs)} targets")
targets = [target for _, target in pairs]
assert targets.count(2) == 1 and 1 not in targets

# %% [markdown]
# (The printout leaves out the middle; ␣ is the space.) A text of $n$ characters has $n + 1$
# targets: each character once, and EOS once. BOS is given and is never a target. We will
# come back to this count with the real documents.

# %% [markdown]
# ## 1.4 The twenty-four documents
#
# The course brings its own corpus: short scenes of everyday life, written for it. A corpus
# carries a card that says where it comes from and what one may do with it.

# %%
for field in ("name", "title", "language", "source", "licence"):
    print(f"{field:10s}{corpus.card[field]}")
print()
for split in ("train", "validation", "test"):
    for document in corpus.split(split):
        length = len(document.text)
        print(f"{document.id}  {split:10s} {length}  {document.title}")
assert sum(map(len, corpus.splits.values())) == len(corpus.documents)

# %% [markdown]
# The number is the length in characters. Each document has an id, a title, a text and a
# gloss, its English translation. Only the *text* ever reaches a model. Three of them, one
# from each group:

# %%
listed = program_a(train_texts, test_texts)
for split, place in (("train", 8), ("validation", 0), ("test", 0)):
    document = corpus.split(split)[place]
    unseen = set(document.text) - listed
    page = figures.document_markdown(document, split, unseen)
    display(Markdown(page))

# %% [markdown]
# The marked characters are those that program A does not know: no training text has them.
# In doc022 they are, among others, the ones of mulberry (桑), silkworm (蚕) and pomegranate
# (石榴). They are what the text is about. To read the other twenty-one documents, change the
# split and the place.
#
# Titles and glosses are full of Latin letters and signs. If one of them had slipped into a
# text, it would show:

# %%
beside = "".join(one.title + one.gloss for one in corpus.documents)
latin = {character for character in beside if character.isascii()}
found = latin & set("".join(one.text for one in corpus.documents))
print(f"{len(latin)} of them stand beside the texts, {len(found)} inside")
assert latin and not found

# %% [markdown]
# ## 1.5 The split comes first
#
# Eighteen documents are for training, three for validation (choices are made with them),
# three for the test (nothing is chosen with them; they are for the final score). The split
# is written in a file and fixed. It comes before everything else, because everything else
# can leak: program B had trained nothing yet, and its list of characters had already seen
# the test texts.
#
# You may read the test texts, and this chapter shows one of them. What you may not do is
# let anything that is built depend on them.
#
# **Why by document?** One could cut every document in two and test on the second halves.
# The halves would not overlap. But a text speaks of the same things from beginning to end.
# Let us measure what that does. The second half of each document is tested twice: once by
# a list made from the *other* twenty-three documents, and once by a list that has seen the
# *first half* of the same document. So that the second list has not simply seen more text,
# it gives up as many characters of the next document.
#
# ```{admonition} Predict, then run
# :class: predict
# The tested characters are the same in both cases. By how many per cent does the number of
# strangers fall when the first half has been seen?
# ```

# %%
guess = None  # your number, in per cent


# %%
def strangers_in_second_halves(first_half_seen):
    """Return how many characters of all second halves are strangers."""
    total = 0
    for place, document in enumerate(corpus.documents):
        half = len(document.text) // 2
        seen = [one.text for one in corpus.documents]
        seen[place] = ""
        if first_half_seen:
            following = (place + 1) % len(seen)
            seen[place], seen[following] = document.text[:half], seen[following][half:]
        total += strangers([document.text[half:]], set("".join(seen)))
    return total


apart = strangers_in_second_halves(first_half_seen=False)
shared = strangers_in_second_halves(first_half_seen=True)
fall = 100 * (apart - shared) / apart
compare_guess(guess, fall, "per cent")
print(f"{apart} strangers by document, {shared} with the first half seen")
glue("fall", f"{fall:.1f}", display=False)
assert shared < apart


# %% [markdown]
# The strangers became fewer by {glue:text}`fall` per cent, and no text was copied. Such a
# test would no longer measure how a model meets a document that it has never seen. So a
# document goes into one group as a whole.
#
# The library guards the split. `Corpus` refuses a document in two groups. It also refuses a
# text that stands twice, whatever its id. White space around a text, and how much of it
# stands at a place, make no difference; a space put where none was makes another text.

# %%
def refusal(documents, splits):
    """Return what `Corpus` says when it refuses."""
    try:
        Corpus("spoilt", tuple(documents), splits, {})
    except DataError as error:
        return str(error)
    return "not refused"


twice = {**corpus.splits, "train": [*corpus.splits["train"], "doc022"]}
print(refusal(corpus.documents, twice))

spoilt = list(corpus.documents)
copy = spoilt[21].text + "\n"  # doc022, a test text, takes the place of doc018
spoilt[17] = dataclasses.replace(spoilt[17], text=copy)
print(refusal(spoilt, corpus.splits))

spaced = spoilt.copy()
spaced[17] = dataclasses.replace(spoilt[17], text=copy[:2] + " " + copy[2:])
print("with a space inside:", refusal(spaced, corpus.splits))

# %%
with planted("leak-not-refused"):
    print(refusal(spoilt, corpus.splits))


# %% [markdown]
# The last cell planted a fault from the course's catalogue. Inside the `with` block the
# library has the fault, and afterwards it is as it was. Here the guard against copies is
# missing, and the spoilt corpus passes without a word. Among the tests that catch it is
# `test_test_document_copied_into_the_training_texts_is_refused`.

# %% [markdown]
# ## 1.6 What is a character?
#
# A file holds bytes. Python reads them into a string, and a string is a sequence of *code
# points*, the numbers that Unicode gives to characters. The course takes one code point for
# one character. `ord` gives the number, and by custom it is written in base 16 after U+.

# %%
def code_points(text):
    """Return the code points of a text, as they are usually written."""
    return " ".join(f"U+{ord(character):04X}" for character in text)


for character in ("a", "禾", "。", "😀"):
    print(code_points(character), character, unicodedata.name(character))
    assert len(character) == 1

# %% [markdown]
# That is simple, and it has consequences that surprise.
#
# ```{admonition} Predict, then run
# :class: predict
# 👨‍👩‍👧 is the emoji of a family: man, woman and girl in one sign. How many code points has it?
# ```

# %%
guess = None  # your number

# %%
family = "👨‍👩‍👧"
compare_guess(guess, len(family), "code points")
for character in family:
    print(code_points(character), unicodedata.name(character))

# %% [markdown]
# What looks like one sign is three people and two invisible joiners. The same happens to
# letters with accents. There is é as one code point, and there is e followed by an accent
# that combines with it:

# %%
composed, combined = "caf\u00e9", "cafe\u0301"
print(composed, code_points(composed))
print(combined, code_points(combined))
print("equal:", composed == combined)
merged = unicodedata.normalize("NFC", combined)
print("NFC of the second is the first:", merged == composed)

# %% [markdown]
# Unicode has a rule, called NFC, that would merge the two. The course does not use it.
# Decoding must give back the text that was encoded, and after NFC it would give another
# one. A course that said nothing here would have made a choice as well, only without
# knowing. So the choice is stated: **a character is one code point, and what looks alike
# may differ.**
#
# ### What is changed after all
#
# Two things in a file say more about the editor that saved it than about the text. Both are
# taken out.
#
# *Line ends.* Unix writes LF (`\n`), Windows CR and LF (`\r\n`), and very old systems CR
# alone (`\r`). *The byte order mark.* Some editors put an invisible U+FEFF in front of a
# file to say how it is encoded.

# %%
files = {
    "Unix": b"hi\nyou",
    "Windows": b"hi\r\nyou",
    "with a byte order mark": b"\xef\xbb\xbfhi\nyou",
}
for name, content in files.items():
    text = content.decode("utf-8")
    print(f"{name:23s}{len(text)} characters  {text!a}")

# %% [markdown]
# One text, three strings. A model would see three different sequences of ids for it.
#
# ### What is refused
#
# UTF-16 files, and the escapes of JSON, write a code point beyond U+FFFF as a pair of numbers
# called surrogates. A file cut in the wrong place can leave one half of the pair. Python
# will hold such a half in a string, but UTF-8 has no bytes for it:

# %%
whole, half = json.loads('"\\ud83d\\ude00"'), json.loads('"\\ud83d"')
print("both halves:", len(whole), "character ", code_points(whole), whole)
print("one half:   ", len(half), "character ", code_points(half))
try:
    half.encode("utf-8")
except UnicodeEncodeError as error:
    print("writing it:", error.reason)

# %% [markdown]
# It is refused when it is read, with its place, and not an hour later when a result cannot
# be saved.
#
# NUL, the code point U+0000, is a character like any other for a tokenizer. But in a document
# it is often the trace of a file that was read in the wrong way, so `Corpus` refuses it:

# %%
text = "hi".encode("utf-16-le").decode("utf-8")
print("UTF-16 read as UTF-8:", ascii(text), f"{len(text)} characters")
spoilt[17] = dataclasses.replace(spoilt[17], text=text)
print(refusal(spoilt, corpus.splits))


# %% [markdown]
# ```{exercise-start}
# :label: exercise-normalise
# ```
# Write `normalise_text`. Its signature and docstring are the contract. More exactly:
#
# - **One** mark is taken away, and only from the very front. A second one behind it, or one
#   inside the text, is a character of the text. `BYTE_ORDER_MARK` is the mark.
# - CRLF becomes one `\n`, and so does each CR that no LF follows. Which of `\r\n` and `\r`
#   has to be replaced first?
# - Nothing else is changed, no space and no other sign that ends a line.
# - A text with a lone surrogate is one that `text.encode("utf-8")` cannot encode. An error
#   of the course is raised with
#   `raise InputError("what is wrong.", expected="what was wanted", got="what came")`.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-normalise
# :class: dropdown
# ```

# %%
# exercise normalise: course_lib.tokenizer.normalise_text
def normalise_text(text):
    """Return `text` with every line end as ``\\n`` and no byte order mark in front.

    Args:
        text: a string of any length.

    Raises:
        InputError: when `text` is no string, or holds a lone surrogate, which is half a
            character and cannot be written to any file.

    Source: chapter 1.
    """
    ### BEGIN SOLUTION
    if not isinstance(text, str):
        raise InputError(
            "this is not a text.", expected="a str", got=type(text).__name__
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            "the text holds a lone surrogate, which is half a character.",
            expected="whole Unicode characters",
            got=f"U+{ord(text[error.start]):04X} at character {error.start}",
            repair="read the text again with the encoding it was written in",
        ) from error
    return text.removeprefix(BYTE_ORDER_MARK).replace("\r\n", "\n").replace("\r", "\n")
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("normalise", normalise_text)


# %% [markdown]
# A check puts your function in its place in the library and tries one claim after another.
# If the function is still a stub, the check says "not done yet" and the chapter goes on.
# If a claim does not hold, it says what was given, what was expected and what came. Here is
# a hasty version that replaces the line ends in the wrong order:

# %%
def hasty(text):
    """Replace CR first: then no CRLF is left, and each has become two."""
    return text.replace("\r", "\n").replace("\r\n", "\n")


try:
    check("normalise", hasty)
except CheckFailed as error:
    print(error)

# %% [markdown]
# Your own function on the three files, and on half a character:

# %%
texts = [normalise_text(one.decode("utf-8")) for one in files.values()]
print(texts)
assert texts == ["hi\nyou"] * 3
try:
    normalise_text("ab" + half)
except InputError as error:
    print(error)

# %% [markdown]
# From here on the name stands for the library's function, so that the next exercises do not
# depend on this one.

# %%
from course_lib.tokenizer import normalise_text


# %% [markdown]
# Now plant two faults, one for each thing that is taken out. `CharTokenizer` is the library's class that turns
# texts into ids; you will write its two main methods below. What would you see in a program
# that has one of the faults?

# %%
def ids_of_file(name):
    """Return the ids of a file under the vocabulary of the Unix one."""
    known = CharTokenizer(sorted(set("hi\nyou")))
    return known.encode(files[name].decode("utf-8"))


for name, fault in (
    ("with a byte order mark", "byte-order-mark-kept"),
    ("Windows", "line-ends-kept"),
):
    print(f"{'as built':21s}", ids_of_file(name))
    with planted(fault):
        print(f"{fault:21s}", ids_of_file(name))

marked = files["with a byte order mark"].decode("utf-8")
right = len(CharTokenizer.fit([marked]))
with planted("byte-order-mark-kept"):
    print(f"V is {len(CharTokenizer.fit([marked]))} instead of {right}")

# %% [markdown]
# One id more, and that is all. It is an UNK, and who never looks at ids will not notice.
# And if a *training* text comes from such a file, the mark gets an id of its own, as
# the last line shows: the size of the vocabulary depends on somebody's editor. The tests
# `test_marked_text_has_the_ids_of_the_unmarked_one` and
# `test_windows_line_ends_have_the_ids_of_unix_ones` catch the two faults.

# %% [markdown]
# ## 1.7 The vocabulary
#
# The *vocabulary* is the list of everything that has an id: UNK, BOS, EOS, and the distinct
# characters of the **training texts only**. Its size is $V$, a letter that will be with us
# to the last chapter.
#
# Only the training texts, because the vocabulary is the first thing that is learned from
# data. Section 1.1 showed what happens otherwise.
#
# In order, because an id is nothing but a place in this list, and the trained model will
# know its characters by their ids alone. To find the distinct characters one uses a set.
# But a set has no order that one may count on. Two equal sets can come out differently:

# %%
one, other = set([0, 8]), set([8, 0])
print("equal:", one == other, "  in order:", list(one), list(other))
assert one == other and sorted(one) == sorted(other)

# %% [markdown]
# For strings it is worse. Python places a string in a set by a number, its hash, and it
# draws the rule for that number anew in every process, unless the variable `PYTHONHASHSEED`
# fixes it. So `list(set(text))` can differ between the program that trains a model and the
# program that loads it. Here is what such a model would do. Let one list be in the order of
# code points and the other be shuffled, as another process might give it:

# %%
saved_order = sorted(set(training_text))
loaded_order = saved_order.copy()
random.Random(1).shuffle(loaded_order)

last_bus = corpus.documents[8].text[:12]
ids = [saved_order.index(character) for character in last_bus]
read_back = "".join(loaded_order[id_] for id_ in ids)
print("written:", last_bus, " (On the last bus only three people ...)")
print("read:   ", read_back, " (no sense at all)")
assert set(saved_order) == set(loaded_order) and read_back != last_bus
try:
    CharTokenizer(loaded_order)
except DataError as error:
    print(error.what)


# %% [markdown]
# The ids are the same, the set of characters is the same, the length is right, and nothing
# raises an error. Every single weight of the model would be as it was trained. It would be a
# good model of a text in another alphabet.
#
# Sorting by code point ends this. The order depends on the characters and on nothing else.
# `CharTokenizer` refuses a list in any other order, as the last line shows, and the test
# `test_corpus_and_vocabulary_are_the_same_in_every_process` starts Python with different
# hash seeds and compares.
#
# ```{exercise-start}
# :label: exercise-vocabulary
# ```
# Write `CharTokenizer.fit`. It is a class method: `cls` is the class itself, and
# `cls(characters)` makes a tokenizer from the known characters in their order. UNK, BOS and
# EOS are added there. Write a plain `def`; the library puts the `@classmethod` in front.
#
# Each text is brought into normal form first, with `normalise_text`. `texts` may be a list,
# a tuple or a generator, so go through it once and do not ask for its length.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-vocabulary
# :class: dropdown
# ```

# %%
# exercise vocabulary: course_lib.tokenizer.CharTokenizer.fit
def fit(cls, texts):
    """Return the tokenizer whose known characters are those of `texts`.

    Args:
        texts: the training texts, and only those: a vocabulary that has seen other
            texts hides how often the model meets an unknown character.
    """
    ### BEGIN SOLUTION
    return cls(
        sorted({character for text in texts for character in normalise_text(text)})
    )
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("vocabulary", fit)

# %%
known = CharTokenizer.fit(train_texts)
V = len(known)
assert V == 3 + len(listed)  # the second way: the list of program A
assert CharTokenizer.from_dict(known.to_dict()).characters == known.characters
glue("V", V, display=False)
print("V =", V)
print("ids 0 to 9:", *(known.token(id_) for id_ in range(10)))
print("code points:", [ord(known.token(id_)) for id_ in range(3, 10)])


# %% [markdown]
# $V$ is {glue:text}`V`. `to_dict` gives the vocabulary as plain values, in its order. In this
# form it is saved with a model, and `from_dict` brings it back. The mark � is how an unknown
# character is shown in print. Section 1.8 shows why it must be shown at all.

# %% [markdown]
# ## 1.8 To ids, and back
#
# Encoding is what you did by hand in section 1.3.
#
# ```{exercise-start}
# :label: exercise-encode
# ```
# Write `CharTokenizer.encode`. The dictionary `self._id_of` leads from each known character
# to its id; `UNK_ID`, `BOS_ID` and `EOS_ID` are the three others. Bring the text into normal
# form first, return a list, and leave the dictionary as it is.
#
# ```{exercise-end}
# ```
#
# ```{solution-start} exercise-encode
# :class: dropdown
# ```

# %%
# exercise encode: course_lib.tokenizer.CharTokenizer.encode
def encode(self, text):
    """Return ``[BOS, one id a character, EOS]``; an unseen character becomes UNK."""
    ### BEGIN SOLUTION
    ids = [self._id_of.get(character, UNK_ID) for character in normalise_text(text)]
    return [BOS_ID, *ids, EOS_ID]
    ### END SOLUTION


# %% [markdown]
# ```{solution-end}
# ```

# %% tags=["check"]
check("encode", encode)


# %% [markdown]
# Your two methods make a class of your own:

# %%
class MyTokenizer(CharTokenizer):
    """The library's tokenizer with the reader's two methods."""


MyTokenizer.fit, MyTokenizer.encode = classmethod(fit), encode
mine = MyTokenizer.fit(train_texts)
assert mine.characters == known.characters
assert all(mine.encode(text) == known.encode(text) for text in train_texts + test_texts)
print("the same vocabulary, and the same ids for every training and test text")

# %% [markdown]
# Decoding goes back. BOS and EOS are not printed, and UNK becomes �. For a text in normal
# form whose characters are all known, the round trip is *exact*. That can be tried on all
# eighteen training texts:

# %%
for text in train_texts:
    assert known.decode(known.encode(text)) == text
silkworms = test_texts[0][:14]
print("text:   ", silkworms)
print("decoded:", known.decode(known.encode(silkworms)))
print("(Xiaohe kept six silkworms; mulberry leaves were never enough.)")

# %% [markdown]
# For a text with unknown characters it cannot be exact: an UNK does not say which character
# it was. But it must be *visible*. The decoded text has the same length, and one sees where
# something is missing. Here is the whole document as a model receives it:

# %%
document = corpus.split("test")[0]
ids = known.encode(document.text)
tokens = ["BOS", *document.text, "EOS"]
assert len(tokens) == len(ids)
length, unknown = len(document.text), ids.count(UNK_ID)
glue("unknown_022", unknown, display=False)
print(f"{length} characters, {len(ids)} ids, {unknown} of them UNK")

# %% mystnb={"image": {"alt": "The test document doc022 as a grid of 13 columns. Each cell shows a character and under it its id. The first cell is BOS with id 1 and the last is EOS with id 2. Thirteen cells have a thick frame and the id 0: the characters for keeping, six, strip, silkworm, mulberry, enough, same, desk, pick, fence and pomegranate, which no training text has."}}
figure = figures.id_grid(tokens, ids)
plt.show()

# %% [markdown]
# The {glue:text}`unknown_022` framed characters all have the id 0. For the model they are one
# and the same thing: mulberry, silkworm and fence cannot be told apart.
#
# ### Five faults, five numbers
#
# Five mistakes are easily made at this point. What can be seen of them from outside? Five
# numbers are observed: the size of the vocabulary, the targets of the test texts, how many
# of them are UNK, how many characters come back when the ids are decoded, and how many ids
# the name 小禾 has when it stands behind a byte order mark.
#
# ```{admonition} Predict, then run
# :class: predict
# The fault `unknown-dropped` leaves unknown characters out. How many targets will the test
# texts have then? As built they have {glue:text}`test_targets`.
# ```

# %%
guess = None  # your number


# %%
def observe():
    """Return five numbers that can be seen from outside."""
    known = CharTokenizer.fit(corpus.texts("train"))
    rows = [known.encode(text) for text in corpus.texts("test")]
    return (
        len(known),
        sum(len(ids) - 1 for ids in rows),
        sum(ids.count(UNK_ID) for ids in rows),
        sum(len(known.decode(ids)) for ids in rows),
        len(known.encode(BYTE_ORDER_MARK + "小禾")),
    )


as_built = observe()
seen = {"as built": as_built}
for fault in (
    "vocabulary-of-all-splits",
    "unknown-dropped",
    "unknown-invisible",
    "no-eos",
    "byte-order-mark-kept",
):
    with planted(fault):
        seen[fault] = observe()
compare_guess(guess, seen["unknown-dropped"][1], "targets")

# %%
print(f"{'':24s}    V  targets  UNK  decoded  mark+小禾")
for name, numbers in seen.items():
    row = f"{name:24s}"
    for number, right, width in zip(numbers, as_built, (5, 9, 5, 9, 8)):
        row += f"{number:{width}d}" + (" " if number == right else "*")
    print(row.rstrip())
    assert name == "as built" or numbers != as_built
assert observe() == as_built
columns = zip(*seen.values(), strict=True)
assert max(sum(one != column[0] for one in column) for column in columns) == 2
assert not any(all(map(int.__ne__, row, as_built)) for row in seen.values())

# %% [markdown]
# A star marks what differs. Read the table line by line.
#
# - `vocabulary-of-all-splits` is program B again, with the validation texts besides. The
#   number of unknown characters is perfect.
# - `unknown-dropped` also reports no unknown characters, and it has fewer targets: the
#   characters that the model cannot know are not even scored.
# - `unknown-invisible` has the right ids. Only the printed text is shorter, and reads on as
#   if nothing were missing.
# - `no-eos` loses one target in each document: the model will never learn to stop.
# - `byte-order-mark-kept` shows nothing on the course's own files. They have no mark. Only
#   an input made for the purpose brings it out.
#
# No fault moves all five numbers, and no number is moved by more than two of the faults. A
# test that looks at one column lets at least three of the five pass. So the tests are tested:
# the command `python -m tests.faults` plants each fault of the catalogue in turn, and reports
# one that no test catches. `unknown-invisible`, for instance, is caught by
# `test_unknown_is_shown_by_a_visible_mark_and_not_dropped`, and `unknown-dropped` by
# `test_each_unseen_character_becomes_one_unk`.

# %% [markdown]
# ## 1.9 Unknown characters, and why they matter
#
# How many characters of each split does the vocabulary not hold?

# %%
for split in ("train", "validation", "test"):
    texts = corpus.texts(split)
    characters = sum(map(len, texts))
    unknown = sum(known.count_unknown(text) for text in texts)
    rate = f"{100 * unknown / characters:.2f}"
    glue(f"{split}_rate", rate, display=False)
    glue(f"{split}_characters", f"{characters:,}", display=False)
    print(f"{split:10s}{characters:5d} characters, {unknown:2d} unknown: {rate} %")
    assert unknown == strangers(texts, listed)

# %% [markdown]
# About one character in six of the test texts is unknown ({glue:text}`test_rate` %), and of
# the validation texts about one in eight ({glue:text}`validation_rate` %). Here they all
# are, in their places:

# %%
ordered = [
    (document, split)
    for split in ("train", "validation", "test")
    for document in corpus.split(split)
]
names = [document.id for document, _ in ordered]
splits = [split for _, split in ordered]
texts = [document.text for document, _ in ordered]
marks = [[character not in listed for character in text] for text in texts]
held_out = corpus.texts("validation") + test_texts
assert sum(map(sum, marks[:18])) == 0
assert sum(map(sum, marks[18:])) == strangers(held_out, listed)

# %% mystnb={"image": {"alt": "Twenty-four horizontal strips, one a document, between 68 and 83 characters long. The eighteen training strips are light throughout. In each of the three validation and three test strips 9 to 14 places are dark: unknown characters, spread over the whole of each text and often two side by side."}}
figure = figures.corpus_map(names, splits, marks)
plt.show()

# %% [markdown]
# Unknown characters matter for three reasons.
#
# 1. **A model trained here never has UNK as a target.** In the training texts every
#    character is known. So nothing teaches the model to expect UNK. Chapter 9 measures how
#    little trust it gets, and how much of the test loss comes from these few places.
# 2. **UNK folds many characters into one.** To predict "something unknown" is easier than to
#    predict 桑. So scores under two vocabularies cannot be ranked; section 1.10 shows the
#    extreme case.
# 3. **The model cannot write what it does not know.** No amount of training will make it
#    write 桑.
#
# ### Would more documents help?
#
# Let the vocabulary see only some of the training documents, and count the unknown
# characters of the test texts. To be fair to all documents, put the eighteen in a ring, take
# $n$ neighbours, starting at each of the eighteen in turn, and average.

# %%
shares = {}
for n in range(1, len(train_texts) + 1):
    shares[n] = []
    for start in range(len(train_texts)):
        ring = train_texts[start:] + train_texts[:start]
        unknown = strangers(test_texts, set("".join(ring[:n])))
        shares[n].append(100 * unknown / size)
means = {n: sum(values) / len(values) for n, values in shares.items()}
falls = [means[n] - means[n + 1] for n in range(1, 18)]
assert falls == sorted(falls, reverse=True) and falls[-1] > 0
for n in (1, 9, 17, 18):
    print(f"{n:2d} documents: {means[n]:.2f} % unknown on average")

# %% mystnb={"image": {"alt": "The share of unknown characters in the test texts against the number of training documents that the vocabulary has seen, from 1 to 18. The mean falls from about 59 per cent, steeply at first, then more and more slowly, to 17.54 per cent with all 18, where it is still falling. A band shows the lowest and the highest of the 18 choices."}}
figure = figures.unknown_shares(shares)
plt.show()

# %% [markdown]
# The curve falls ever more slowly, and it is still falling at the end. The next figure says
# why.

# %%
counts = Counter(training_text)
by_rank = counts.most_common()
once = sum(count == 1 for count in counts.values())
first_50 = sum(count for _, count in by_rank[:50])
share_50 = 100 * first_50 / len(training_text)
glue("once", once, display=False)
glue("share_50", f"{share_50:.1f}", display=False)
print(f"{len(counts)} characters, {once} of them occur once")
print(f"the 50 most frequent make {share_50:.1f} % of the text")
assert sum(counts.values()) == len(training_text)

# %% mystnb={"image": {"alt": "Left: how often each of the 382 characters occurs against its rank, both axes logarithmic, falling from about 100 for the comma and 58 for the full stop to 1; five characters are named. Right: the share of the training text that the most frequent characters cover. It rises steeply, passes one half before 50 characters, and flattens; a shaded band marks the characters that occur only once, nearly half of all."}}
signs = {"，": "comma", "。": "full stop", "了": "done"}
signs |= {"一": "one", "的": "of"}
top = [character for character, _ in by_rank[: len(signs)]]
assert set(top) == set(signs)
figure = figures.coverage(
    [count for _, count in by_rank],
    [f"{character} {signs[character]}" for character in top],
)
plt.show()

# %% [markdown]
# A few characters make most of the text: the 50 most frequent cover
# {glue:text}`share_50` % of it. And there is a long tail: {glue:text}`once` characters occur
# exactly once. Each of these stands in one document and no other, and a model sees it in one
# surrounding only. Every document brings such rare characters of its own. Reading one more
# adds those of *that* document, few of which the test texts happen to use. This is why the
# curve is slow to come down.
#
# One caution belongs to these numbers. The full card of the corpus, `data/CARD.md`, says that
# the wording of the documents was adjusted until the unknown counts of validation and test
# were what was wanted. So the two rates were *chosen*, and a chosen number estimates nothing.
# Is there a way to ask the corpus itself? Leave out one training document at a time, and ask
# how many of its characters the other seventeen do not have:

# %%
left_out = 0
for place, text in enumerate(train_texts):
    others = train_texts[:place] + train_texts[place + 1 :]
    left_out += strangers([text], set("".join(others)))
left_out_rate = 100 * left_out / len(training_text)
glue("left_out_rate", f"{left_out_rate:.2f}", display=False)
glue("after_17", f"{means[17]:.2f}", display=False)
print(f"{left_out} of {len(training_text)} unknown ({left_out_rate:.2f} %)")
print(f"the test texts, after 17 documents: {means[17]:.2f} %")
assert left_out_rate > means[17]

# %% [markdown]
# A training document is stranger to the other seventeen ({glue:text}`left_out_rate` %) than
# the test documents are to seventeen training documents ({glue:text}`after_17` %). So a fresh
# document of the same kind would probably have more unknown characters than the test texts
# have. The chosen rates alone could not have told that.

# %% [markdown]
# ## 1.10 What exactly is predicted
#
# Now the count that all scores rest on. Each character is a target once, known or not. Each
# document adds one EOS. BOS is never a target.
#
# ```{admonition} Predict, then run
# :class: predict
# The eighteen training documents have {glue:text}`train_characters` characters. How many
# targets do they have?
# ```

# %%
guess = None  # your number

# %%
counted = {}
print(f"{'':11s}documents  characters  EOS  targets  of them UNK")
for split in ("train", "validation", "test"):
    texts = corpus.texts(split)
    targets = [id_ for text in texts for id_ in known.encode(text)[1:]]
    characters, ends = sum(map(len, texts)), targets.count(EOS_ID)
    print(f"{split:11s}{len(texts):9d}{characters:12,d}{ends:5d}", end="")
    print(f"{len(targets):9,d}{targets.count(UNK_ID):13d}")
    assert ends == len(texts) and BOS_ID not in targets
    assert len(targets) == characters + len(texts)
    counted[split] = len(targets)
    glue(f"{split}_targets", f"{len(targets):,}", display=False)
compare_guess(guess, counted["train"], "targets")

# %% [markdown]
# So a training score of this course is an average over {glue:text}`train_targets` targets,
# a validation score over {glue:text}`validation_targets`, and a test score over
# {glue:text}`test_targets`. If a program reports another number of targets for these texts,
# its score is a score for another task. Look at the count first.
#
# ### The first baseline
#
# A score means little alone. The plainest thing to hold beside it is a model that knows
# nothing and gives each of the $V$ entries the same trust, $1/V$. Chapter 2 measures a miss
# in nats, by the natural logarithm $\ln$ (in Python `math.log`), and less is better. In this
# unit the empty guess scores $\ln V$ at every target, whatever the text:

# %%
uniform = math.log(V)
glue("uniform", f"{uniform:.4f}", display=False)
print(f"1/V = {1 / V:.6f}   ln V = {uniform:.4f} nats")

# %% [markdown]
# Remember the {glue:text}`uniform`. A model that has learned its training texts is below it
# there. How far it is below it on *other* texts is a question for chapter 9.
#
# The baseline also shows in one line why scores under two vocabularies cannot be ranked. Take
# the poorest vocabulary there is, UNK, BOS and EOS and not a single character:

# %%
poorest = CharTokenizer([])
print(f"V = {len(poorest)}, ln V = {math.log(len(poorest)):.4f} nats")
print(repr(poorest.decode(poorest.encode("小禾"))))
assert math.log(len(poorest)) < uniform

# %% [markdown]
# The same empty guess, the same texts, and a much lower number. It was earned by knowing no
# character at all: every text has become a row of �.

# %% [markdown]
# ## 1.11 Find the fault
#
# One of six faults is hidden behind a seed. Five of them you have met; the sixth,
# `test-document-in-training`, lets a test document into the training split.
#
# ```{admonition} Find the fault
# :class: fault
# Which is it, and which documents does it concern? Put your experiments into the next cell,
# inside the `with` block. `observe()` of section 1.8 gives the five numbers, and `as_built`
# holds those of the sound library.
# ```

# %%
suspects = [
    "vocabulary-of-all-splits",
    "unknown-dropped",
    "test-document-in-training",
    "unknown-invisible",
    "no-eos",
    "byte-order-mark-kept",
]
hidden_fault = random.Random(7).choice(suspects)
with planted(hidden_fault):
    suspect = observe()
    # your experiments

# %% [markdown]
# <details class="answer"><summary>First hint</summary>
#
# Compare `suspect` with `as_built`. Which of the five numbers differ? Which of the suspects
# can change those and leave the others alone?
#
# </details>
# <details class="answer"><summary>Second hint</summary>
#
# Fit a tokenizer inside the block, and count the unknown characters of each validation and
# test document with `count_unknown`. Compare with `known`, document by document.
#
# </details>
# <details class="answer"><summary>Answer</summary>
#
# The vocabulary is larger, and there are fewer unknown characters, but not none. So it is
# not `vocabulary-of-all-splits`. The rows say more: doc022 has no unknown character any
# more, and the other five documents have as many as before. The vocabulary has seen doc022
# and none of the others. It is `test-document-in-training`. The sum alone looks like a
# pleasant improvement; the rows show a leak. The test
# `test_split_is_18_train_3_validation_3_test_by_document` counts the documents of each
# split, and catches it. The next cell shows each step.
#
# </details>

# %% tags=["hide-cell"]
with planted(hidden_fault):
    suspect = observe()
    fitted = CharTokenizer.fit(corpus.texts("train"))
print("          V    targets  UNK  decoded  mark+小禾")
for name, numbers in (("as built", as_built), ("now", suspect)):
    print("{:9s} {:3d} {:9d} {:5d} {:8d} {:7d}".format(name, *numbers))
for document in corpus.split("validation") + corpus.split("test"):
    before = known.count_unknown(document.text)
    now = fitted.count_unknown(document.text)
    print(f"{document.id}: {before} unknown as built, {now} now")
print(hidden_fault, "is", FAULTS[hidden_fault].is_like + ".")
print("symptom:", FAULTS[hidden_fault].symptom + ".")
assert suspect[2] == as_built[2] - known.count_unknown(test_texts[0])
assert fitted.count_unknown(test_texts[0]) == 0

# %% [markdown]
# ## 1.12 What this evidence supports, and what it does not
#
# | evidence | supports | does not support |
# | --- | --- | --- |
# | the ids of "the cat sat." by hand | encoding does what its description says | that characters are a good choice of unit |
# | exact round trip on 18 texts | nothing is lost in a text of known characters | that a text with unknown ones can be restored |
# | $V$ computed along two paths | the vocabulary is that of the training texts | that it is large enough |
# | `Corpus` refuses copies | no text stands twice, runs of white space taken as one | that no text was *rewritten* into another split |
# | halves against documents | splitting inside documents makes the test easier, for unknown characters | how much easier for a trained model |
# | rates of unknown characters | what share of the test will be UNK targets | an estimate for Chinese, or even for the next document: the rates were chosen |
# | characters plus EOS equals targets | what is scored, and how often | that the windows of chapter 8 keep it so: that is tested there |
#
# All of it is about the *task*. Nothing has been learned yet.

# %% [markdown]
# ## 1.13 Quiz
#
# Choose an answer; each one explains itself.
#
# **1. A colleague's program reports 0 unknown characters on its test texts. What do you look
# at first?**
#
# <details class="quiz"><summary>Nothing; its vocabulary is large enough.</summary>
#
# No. It may be, but the number cannot tell you. Program B reported 0 as well.
#
# </details>
# <details class="quiz"><summary>Which texts the vocabulary was made from.</summary>
#
# Yes. And then whether unknown characters were dropped: the number of targets shows it.
#
# </details>
# <details class="quiz"><summary>Whether the test texts are long enough.</summary>
#
# No. A longer test that the vocabulary has seen has no unknown characters either.
#
# </details>
#
# **2. A document has 70 characters, 9 of them unknown. How many targets is that?**
#
# <details class="quiz"><summary>62: an unknown character cannot be predicted.</summary>
#
# No. It is a target like any other; its id is 0. Leaving it out is the fault
# `unknown-dropped`.
#
# </details>
# <details class="quiz"><summary>71: each character, and EOS.</summary>
#
# Yes. BOS is given and never asked for.
#
# </details>
# <details class="quiz"><summary>72: there are 72 ids.</summary>
#
# No. There are 72 ids, but the first is BOS, and nothing predicts it.
#
# </details>
#
# **3. `decode(encode(text))` is shorter than `text`. Which of these can be right behaviour?**
#
# <details class="quiz"><summary>The unknown characters print as nothing.</summary>
#
# No. That is the fault `unknown-invisible`: one mark for each is owed.
#
# </details>
# <details class="quiz"><summary>The text had Windows line ends.</summary>
#
# Yes. CR and LF became one LF before anything was encoded. The round trip is exact for the
# text in normal form.
#
# </details>
# <details class="quiz"><summary>An e and its accent became one character.</summary>
#
# No. Nothing is merged. Two code points go in, and two come out.
#
# </details>
#
# **4. Somebody orders the vocabulary by frequency. Is that an error?**
#
# <details class="quiz"><summary>Yes, small ids must be small code points.</summary>
#
# No. The ids are names. A model can be trained under any order.
#
# </details>
# <details class="quiz"><summary>No, if the order is the same each time and is saved.</summary>
#
# Yes. But two characters that are equally frequent need a rule as well, or the order is not
# fixed. Code points need no second rule.
#
# </details>
# <details class="quiz"><summary>No, it even makes the model better.</summary>
#
# No. Nothing in the model uses that one id is smaller than another.
#
# </details>
#
# **5. Model M has $V = 385$ and a lower test loss than model N with $V = 5000$. Is M better?**
#
# <details class="quiz"><summary>Yes, both were scored on the same texts.</summary>
#
# No. The texts are the same, but the targets are not: M may answer "unknown" where N has to
# name the character.
#
# </details>
# <details class="quiz"><summary>It cannot be said from these numbers.</summary>
#
# Yes. UNK folds many characters into one, and that makes the task of M easier.
#
# </details>
# <details class="quiz"><summary>No, the larger vocabulary is always better.</summary>
#
# No. It is a harder task, and nothing is said about how well either does on a common one.
#
# </details>
#
# ## 1.14 Where we stand
#
# Documents are ids now, the split is fixed, and it is known to the last target what will be
# predicted. What is missing is a way to say how good a prediction is. Chapter 2 shifts the
# ids by one place to get the targets, and measures trust in nats.
