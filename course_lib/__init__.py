"""The library that the twelve chapters build up, one module a concept.

The table says which chapter builds which module.  A module imports only modules of its
own chapter or earlier ones, and the ground; a test holds the table true.

    chapter  modules
    ground   errors config files
    1        tokenizer documents
    2        losses
    3        attention
    5        block
    6        gradients
    7        model
    8        windows training checkpointing
    9        evaluation
    10       generation
    11       docstrings experiments
    12       manifest verification
    figures  plotting
    commands command train evaluate generate checkpoint fixed_batch verify report

Some modules grow later: attention in chapters 4 and 10, losses in 6 and 9, model in 10,
generation in 11.
"""

__version__ = "0.1.0"
