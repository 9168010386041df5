"""Small models, and ways to look inside them, for the tests.

Each axis has a length of its own, so that a swapped axis cannot pass: B=3, T=5, C=7, h=2,
d_h=11 (hence d=22), f=13, V=17. SMALL is for tests that call the model very often:
C=5, h=2, d_h=3 (hence d=6), f=11, V=13.
"""

import torch
from hypothesis import Phase, settings

from course_lib import model
from tests import oracles

CONFIG = model.Config(
    vocab_size=17, block_size=7, d_model=22, n_heads=2, n_layers=2, d_ff=13, dropout=0.0
)
SMALL = model.Config(
    vocab_size=13, block_size=5, d_model=6, n_heads=2, n_layers=2, d_ff=11, dropout=0.0
)
B, T = 3, 5
CLOSE = 1e-10  # float64, library against oracle

# The same examples each time. A failing one is not made smaller: most are seeds.
quick = settings(
    derandomize=True,
    deadline=None,
    max_examples=20,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)


def normal(*shape, seed=7, dtype=torch.float64):
    """Return numbers of Normal(0, 1), drawn in float64 from a generator of their own."""
    numbers = torch.empty(shape, dtype=torch.float64)
    return numbers.normal_(generator=torch.Generator().manual_seed(seed)).to(dtype)


def random_ids(*shape, vocab_size=CONFIG.vocab_size, seed=7):
    """Return int64 ids in [0, V)."""
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(seed))


def random_lm(config=CONFIG, kernels="explicit", seed=7, std=0.5):
    """Return a float64 model in evaluation mode, all parameters Normal(0, std).

    Gains, shifts and biases too are drawn: at their neutral 1 and 0 a fault could hide.
    """
    lm = model.TransformerLM(config, kernels).double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in lm.parameters():
            parameter.normal_(0.0, std, generator=generator)
    return lm


def random_block(seed=7):
    """Return the first block of a random model: float64, evaluation mode."""
    return random_lm(seed=seed).blocks[0]


def state_lists(module):
    """Return the state dict as nested lists, as the oracles read it."""
    return {name: tensor.tolist() for name, tensor in module.state_dict().items()}


def parameter_shapes(config):
    """Return the shape of every parameter a model of `config` must have, by name."""
    return oracles.parameter_shapes(
        config.vocab_size, config.block_size, config.d_model, config.n_layers, config.d_ff
    )


def named_parameters(lm):
    """Return every parameter the contract names; AttributeError for one that is missing."""
    return {name: lm.get_parameter(name) for name in parameter_shapes(lm.config)}


def copy_parameters(lm):
    """Return a copy of every parameter the contract names."""
    return {name: value.detach().clone() for name, value in named_parameters(lm).items()}


def set_parameters(lm, state):
    """Set the parameters to nested lists; a table may get another number of rows."""
    for name, values in state.items():
        lm.get_parameter(name).data = torch.tensor(values, dtype=torch.float64)


def assert_close(got, expected, atol=CLOSE):
    """Compare a tensor with a tensor, number or nested list: shape and every entry."""
    expected = torch.as_tensor(expected, dtype=got.dtype)
    torch.testing.assert_close(got, expected, rtol=0.0, atol=atol)


def largest_difference(left, right):
    """Return the largest absolute difference of two tensors of one shape."""
    assert left.shape == right.shape
    return (left - right).abs().max().item()


def watch(module, *arguments, **keywords):
    """Call `module`; return what its submodules read and returned, by name.

    Returns:
        ``(result, inputs, outputs)``: the first argument and the result of each submodule
        that was called, in the order of the calls. An attention or a block counts with the
        tensor of its pair.
    """
    inputs, outputs, hooks = {}, {}, []

    def make_hook(name):
        def hook(_, given, returned):
            assert name not in inputs, f"{name} is called twice"
            inputs[name] = given[0]
            outputs[name] = returned[0] if isinstance(returned, tuple) else returned

        return hook

    for name, part in module.named_modules():
        if name and not name.endswith("dropout"):  # one dropout may serve two branches
            hooks.append(part.register_forward_hook(make_hook(name)))
    try:
        result = module(*arguments, **keywords)
    finally:
        for hook in hooks:
            hook.remove()
    return result, inputs, outputs


def spy(monkeypatch, module, name):
    """Let the function `name` of `module` keep its results; return the growing list."""
    results, function = [], getattr(module, name)

    def spied(*arguments, **keywords):
        results.append(function(*arguments, **keywords))
        return results[-1]

    monkeypatch.setattr(module, name, spied)
    return results


def double_instead_of_dropout(monkeypatch):
    """Let dropout double what it is given, in training; return the list of their shapes."""
    shapes = []

    def double(values, p=0.5, training=True, inplace=False):
        if not training or p == 0:
            return values
        shapes.append(tuple(values.shape))
        return 2.0 * values

    monkeypatch.setattr(torch.nn.functional, "dropout", double)
    return shapes
