"""The exercises of chapter 7: embedding, initial weights, the decoder."""

import torch

from course_lib import model
from course_lib.config import Config
from course_lib.workbook.exercises import exercise
from course_lib.workbook.mismatch import Mismatch, expect_close, expect_equal, refuses

# A different prime for every axis, so that a mixed-up axis cannot hide.
CONFIG = Config(
    vocab_size=11, block_size=7, d_model=10, n_heads=2, n_layers=3, d_ff=13, dropout=0.0
)


def example_model(dropout=0.0):
    """Return a float64 model whose weights are large enough to make every fault visible."""
    config = Config(**{**CONFIG.to_dict(), "dropout": dropout})
    generator = torch.Generator().manual_seed(20)
    network = model.TransformerLM(config, generator=generator).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(
                0.3 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
            )
    return network.eval()


def example_tokens(rows=3, length=5):
    """Return ids ``[rows, length]`` without two equal rows."""
    generator = torch.Generator().manual_seed(21)
    return torch.randint(0, CONFIG.vocab_size, (rows, length), generator=generator)


def plain_logits(network, tokens):
    """Return the logits as the submodules give them, one after the other."""
    positions = torch.arange(tokens.shape[1])
    hidden = network.token_embedding(tokens) + network.position_embedding(positions)
    for block in network.blocks:
        hidden, _ = block(hidden)
    return network.head(network.final_norm(hidden))


embedding = exercise("embedding", 7, "course_lib.model.TransformerLM.embed")


@embedding("H^(0) is the token row plus the position row")
def token_row_plus_position_row():
    network, tokens = example_model(), example_tokens()
    with torch.no_grad():
        hidden = network.embed(tokens)
    expected = torch.stack(
        [
            torch.stack(
                [
                    network.token_embedding.weight[id_] + network.position_embedding.weight[place]
                    for place, id_ in enumerate(row)
                ]
            )
            for row in tokens.tolist()
        ]
    )
    expect_close("tokens [3,5]", expected, hidden)


@embedding("positions go on behind the past")
def positions_go_on():
    network, tokens = example_model(), example_tokens(length=2)
    with torch.no_grad():
        hidden = network.embed(tokens, 4) - network.token_embedding(tokens)
    expected = network.position_embedding.weight[4:6].expand(3, 2, -1)
    expect_close("tokens [3,2] behind 4 positions", expected, hidden)


@embedding("dropout acts once, on the sum, and only while training")
def dropout_acts_on_the_sum():
    network, tokens = example_model(dropout=0.5), example_tokens()
    with torch.no_grad():
        plain = network.embed(tokens)
        torch.manual_seed(0)
        expected = torch.nn.functional.dropout(plain, 0.5)
        torch.manual_seed(0)
        got = network.train().embed(tokens)
    expect_close("dropout 0.5 while training, the same seed", expected, got)
    rows = network.token_embedding(tokens) + network.position_embedding(torch.arange(5))
    expect_close("dropout 0.5 in evaluation", rows.detach(), plain)


initial = exercise("initialisation", 7, "course_lib.model.initialise")


def wide_model(seed=3):
    """Return a model with enough weights to measure their spread."""
    config = Config(vocab_size=101, block_size=31, d_model=64, n_heads=4, n_layers=2, d_ff=128)
    return model.TransformerLM(config, generator=torch.Generator().manual_seed(seed))


def named_weights(network, kinds):
    """Yield the weights of modules of the given kinds, by name."""
    for name, module in network.named_modules():
        if isinstance(module, kinds):
            yield name, module


def replayed(network, generator):
    """Yield name, weight and the float64 draws it should hold, in the order of modules()."""
    for name, module in named_weights(network, (torch.nn.Linear, torch.nn.Embedding)):
        draws = torch.empty(module.weight.shape, dtype=torch.float64)
        draws.normal_(0.0, 0.02, generator=generator)
        yield f"{name}.weight", module.weight.detach(), draws


@initial("tables and linear maps start as Normal(0, 0.02)")
def tables_and_maps_are_normal():
    for name, module in named_weights(wide_model(), (torch.nn.Linear, torch.nn.Embedding)):
        mean, spread = module.weight.mean().item(), module.weight.std().item()
        # The spread of n draws is known to about 0.02 / sqrt(2 n); six times that is allowed.
        slack = 6 * 0.02 / module.weight.numel() ** 0.5
        if abs(spread - 0.02) > slack or abs(mean) > slack:
            raise Mismatch(
                f"{name}.weight",
                "mean 0 and standard deviation 0.02",
                f"mean {mean:.4f} and standard deviation {spread:.4f}",
            )


@initial("the numbers are drawn in float64 from the generator, module by module, then rounded")
def draws_are_in_float64():
    for name, weight, draws in replayed(wide_model(3), torch.Generator().manual_seed(3)):
        expect_equal(name, draws.to(weight.dtype), weight)


@initial("without a generator they come from torch's global stream")
def global_stream_without_a_generator():
    network = wide_model()
    torch.manual_seed(5)
    model.initialise(network)
    torch.manual_seed(5)
    for name, weight, draws in replayed(network, None):
        expect_equal(f"{name} after torch.manual_seed(5)", draws.to(weight.dtype), weight)


@initial("biases start at 0, LayerNorm at gain 1 and shift 0, and dtypes stay")
def biases_and_norms_are_plain():
    network = wide_model().double()
    model.initialise(network, torch.Generator().manual_seed(3))
    for name, parameter in network.named_parameters():
        norm = name.startswith("final_norm") or ".ln_" in name
        expect_equal(f"the dtype of {name}", torch.float64, parameter.dtype)
        if parameter.dim() == 1:
            wanted = 1.0 if norm and name.endswith("weight") else 0.0
            expect_equal(name, torch.full_like(parameter, wanted), parameter.detach())


decoder = exercise("decoder", 7, "course_lib.model.TransformerLM.forward")


@decoder("the result is a dictionary with logits [B,T,V], loss and past_key_values")
def result_has_its_form():
    network, tokens = example_model(), example_tokens()
    output = network(tokens)
    if not isinstance(output, dict):
        raise Mismatch("tokens [3,5]", "a dictionary", type(output).__name__)
    expect_equal("the keys", ["logits", "loss", "past_key_values"], sorted(output))
    expect_equal("the shape of logits", [3, 5, CONFIG.vocab_size], list(output["logits"].shape))
    expect_equal(
        "loss and past without targets and cache",
        [None, None],
        [output["loss"], output["past_key_values"]],
    )


@decoder("logits are embedding, every block in order, final norm, head")
def logits_are_the_composition():
    network, tokens = example_model(), example_tokens()
    with torch.no_grad():
        expect_close("tokens [3,5]", plain_logits(network, tokens), network(tokens)["logits"])


@decoder("logits of every position are returned, with targets too")
def logits_of_every_position_with_targets():
    network, tokens = example_model(), example_tokens()
    with torch.no_grad():
        output = network(tokens, tokens.roll(-1, dims=1))
        expect_close("tokens and targets [3,5]", plain_logits(network, tokens), output["logits"])


@decoder("the logits of a position do not depend on later tokens")
def two_futures():
    network, tokens = example_model(), example_tokens()
    other = tokens.clone()
    other[:, 3:] = (other[:, 3:] + 1) % CONFIG.vocab_size
    with torch.no_grad():
        one, two = network(tokens)["logits"], network(other)["logits"]
    expect_equal("two futures after position 2", one[:, :3], two[:, :3])
    if torch.equal(one[:, 3:], two[:, 3:]):
        raise Mismatch("two futures", "logits that differ from position 3 on", "equal logits")


@decoder("the loss is the sum of nats over the scored targets, divided by their number")
def loss_is_sum_over_count():
    network, tokens = example_model(), example_tokens()
    targets = tokens.roll(-1, dims=1)
    targets[0, 1:] = -100
    targets[1, 4] = -100
    logits = plain_logits(network, tokens).log_softmax(dim=-1)
    scored = targets != -100
    nats = -logits[scored].gather(1, targets[scored][:, None]).sum()
    loss = network(tokens, targets)["loss"]
    expect_close("9 scored targets of 15 in rows of 1, 4 and 5", nats / scored.sum(), loss)
    if not loss.requires_grad:
        raise Mismatch("targets [3,5]", "a loss attached to the graph", "a detached one")


@decoder("the tokens and targets given are left as they were")
def arguments_are_left_alone():
    network, tokens = example_model(), example_tokens()
    targets = tokens.roll(-1, dims=1)
    before = tokens.clone(), targets.clone()
    network(tokens, targets)
    expect_equal("tokens after the call", before[0], tokens)
    expect_equal("targets after the call", before[1], targets)


@decoder("tokens and targets outside the contract are refused with a ValueError")
def bad_input_is_refused():
    network, tokens = example_model(), example_tokens()
    refuses("float tokens", lambda: network(tokens.double()))
    refuses("tokens [5]", lambda: network(tokens[0]))
    refuses("no tokens", lambda: network(tokens[:, :0]))
    refuses("an id of V", lambda: network(tokens + CONFIG.vocab_size))
    refuses("more than C positions", lambda: network(example_tokens(length=8)))
    refuses("targets of another shape", lambda: network(tokens, tokens[:, 1:]))
    refuses("no scored target", lambda: network(tokens, tokens * 0 - 100))


@decoder("a cache is refused (chapter 7), or continues the same sequence (chapter 10)")
def cache_is_refused_or_right():
    network, tokens = example_model(), example_tokens()
    refuses("targets and a cache", lambda: network(tokens, tokens, use_cache=True))
    with torch.no_grad():
        try:
            past = network(tokens[:, :3], use_cache=True)["past_key_values"]
        except ValueError:
            return
        rest = network(tokens[:, 3:], past_key_values=past, use_cache=True)["logits"]
        expect_close("3 tokens cached, 2 new", plain_logits(network, tokens)[:, 3:], rest)
