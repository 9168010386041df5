"""Independent oracles: the mathematics of the course as plain loops over Python floats.

This file is the second opinion that the library is compared with. It therefore imports the
standard library only, never the code it judges; every number is a Python float (float64) and
every tensor a nested list. Clarity comes before speed: use small cases.

Axis legend. B batch, T query positions, S key positions (S = past + T), h heads, d model width,
d_h = d/h head width, f feed-forward width, V vocabulary size, C maximum context, N layers.
A shape such as [T][d] means a list of T lists of d floats; a linear weight is [out][in].
Masks are boolean and True means "may attend". Losses travel as (sum of nats, count) and are
divided once, at the end. Wrong shapes or values raise ValueError saying what was got.
"""

import math

Vector = list[float]
Matrix = list[Vector]

IGNORE = -100  # a target with this id is not scored
LAYER_NORM_EPS = 1e-5


def require(condition, message):
    """Raise ValueError(message) unless the condition holds."""
    if not condition:
        raise ValueError(message)


def shape_of(values) -> tuple[int, ...]:
    """Return the shape of a nested list, () for a number.

    Raises: ValueError if the nesting is ragged.
    """
    if not isinstance(values, (list, tuple)):
        return ()
    inner = {shape_of(value) for value in values}
    require(len(inner) <= 1, f"ragged nesting: parts of shapes {sorted(inner)}")
    return (len(values), *(inner.pop() if inner else ()))


def require_shape(name, values, expected):
    """Raise ValueError unless the nested list has the expected shape (a tuple)."""
    got = shape_of(values)
    require(got == tuple(expected), f"{name}: expected shape {tuple(expected)}, got {got}")


# --- linear algebra -------------------------------------------------------------------------


def dot(left: Vector, right: Vector) -> float:
    """Return sum_i left_i right_i; the sum is rounded once, so its order does not matter.

    Raises: ValueError if the lengths differ.
    """
    require(len(left) == len(right), f"dot: lengths {len(left)} and {len(right)} differ")
    return math.fsum(a * b for a, b in zip(left, right))


def linear(rows: Matrix, weight: Matrix, bias: Vector | None = None) -> Matrix:
    """Return y_to = sum_i weight_oi x_ti + bias_o for rows [T][in], weight [out][in]; [T][out].

    Raises: ValueError if the inner widths differ or the bias is not [out].
    """
    if bias is None:
        bias = [0.0] * len(weight)
    require_shape("bias", bias, (len(weight),))
    return [[dot(w, row) + b for w, b in zip(weight, bias)] for row in rows]


def add_rows(left: Matrix, right: Matrix) -> Matrix:
    """Return left + right, both [T][d]; nothing is broadcast.

    Raises: ValueError if the shapes differ.
    """
    require_shape("right summand", right, shape_of(left))
    return [[a + b for a, b in zip(row, other)] for row, other in zip(left, right)]


# --- softmax and cross-entropy --------------------------------------------------------------


def logsumexp(values: Vector) -> float:
    """Return ln sum_j e^{x_j}, computed as m + ln sum_j e^{x_j - m} with m = max x.

    Raises: ValueError if the list is empty.
    """
    require(len(values) > 0, "logsumexp of an empty list")
    largest = max(values)
    return largest + math.log(math.fsum(math.exp(x - largest) for x in values))


def log_softmax(values: Vector) -> Vector:
    """Return x_i - logsumexp(x), the log-probabilities of one row.

    Raises: ValueError if the list is empty.
    """
    normaliser = logsumexp(values)
    return [x - normaliser for x in values]


def softmax(values: Vector) -> Vector:
    """Return p_i = e^{x_i - m} / sum_j e^{x_j - m} with m = max x.

    Raises: ValueError if the list is empty.
    """
    require(len(values) > 0, "softmax of an empty list")
    largest = max(values)
    exponentials = [math.exp(x - largest) for x in values]
    total = math.fsum(exponentials)
    return [e / total for e in exponentials]


def check_targets(logits: Matrix, targets: list[int]):
    """Raise ValueError unless there is one target a row, each IGNORE or inside [0, V)."""
    require(len(logits) == len(targets), f"{len(logits)} rows but {len(targets)} targets")
    for row, target in zip(logits, targets):
        inside = target == IGNORE or 0 <= target < len(row)
        require(inside, f"target {target} outside [0, {len(row)})")


def cross_entropy_sum(logits: Matrix, targets: list[int]) -> tuple[float, int]:
    """Return (sum of nats, count) over the scored rows: nats_t = logsumexp(z_t) - z_t[y_t].

    Arguments: logits [T][V]; targets [T], -100 = not scored. Sums of several sequences are
    added before the one division. With no scored row the result is (0.0, 0).
    Raises: ValueError for unequal lengths or a target outside [0, V).
    """
    check_targets(logits, targets)
    nats = [
        logsumexp(row) - row[target]
        for row, target in zip(logits, targets)
        if target != IGNORE
    ]
    return math.fsum(nats), len(nats)


def cross_entropy_batch(logits, targets) -> tuple[float, int]:
    """Return (sum of nats, count) over a batch: logits [B][T][V], targets [B][T].

    Raises: ValueError as cross_entropy_sum, or if the batch sizes differ.
    """
    require(len(logits) == len(targets), f"batches of {len(logits)} and {len(targets)} differ")
    parts = [cross_entropy_sum(rows, wanted) for rows, wanted in zip(logits, targets)]
    return math.fsum(nats for nats, _ in parts), sum(count for _, count in parts)


def mean_nats(nats: float, count: int) -> float:
    """Return nats / count, the only division of a loss.

    Raises: ValueError if no token was scored.
    """
    require(count > 0, f"no scored token: count is {count}")
    return nats / count


def perplexity(nats: float, count: int) -> float:
    """Return exp(nats / count). Raises: ValueError if no token was scored."""
    return math.exp(mean_nats(nats, count))


def bits_per_character(nats: float, count: int) -> float:
    """Return (nats / count) / ln 2. Raises: ValueError if no token was scored."""
    return mean_nats(nats, count) / math.log(2.0)


def softmax_cross_entropy_gradient(logits: Vector, target: int) -> Vector:
    """Return d nats / d z_i = p_i - [i = target] for one scored row of logits [V].

    Raises: ValueError if the target is outside [0, V).
    """
    require(0 <= target < len(logits), f"target {target} outside [0, {len(logits)})")
    return [p - (1.0 if i == target else 0.0) for i, p in enumerate(softmax(logits))]


def cross_entropy_mean_gradient(logits: Matrix, targets: list[int]) -> Matrix:
    """Return the gradient [T][V] of the mean nats: (p - onehot) / count, zero where unscored.

    Raises: ValueError as cross_entropy_sum, or if no token is scored.
    """
    check_targets(logits, targets)
    count = sum(target != IGNORE for target in targets)
    require(count > 0, "no scored token: count is 0")
    gradient = []
    for row, target in zip(logits, targets):
        if target == IGNORE:
            gradient.append([0.0] * len(row))
        else:
            gradient.append([g / count for g in softmax_cross_entropy_gradient(row, target)])
    return gradient


# --- attention ------------------------------------------------------------------------------


def causal_mask(queries: int, keys: int) -> list[list[bool]]:
    """Return the mask [T][S]: query i stands at position S-T+i and may attend j <= S-T+i.

    Raises: ValueError if T < 1 or T > S (a query before every key could attend to nothing).
    """
    require(1 <= queries <= keys, f"need 1 <= T <= S, got T={queries}, S={keys}")
    mask = []
    for i in range(queries):
        position = keys - queries + i
        mask.append([j <= position for j in range(keys)])
    return mask


def scaled_scores(queries: Matrix, keys: Matrix) -> Matrix:
    """Return s_ij = q_i . k_j / sqrt(d_h) of one head, unmasked.

    Arguments: queries [T][d_h], keys [S][d_h]. Returns: [T][S].
    Raises: ValueError if the widths differ.
    """
    return [[dot(q, k) / math.sqrt(len(q)) for k in keys] for q in queries]


def masked_weights(scores: Matrix, mask: list[list[bool]]) -> Matrix:
    """Return each query's softmax over the keys it may attend; every other weight is exactly 0.

    Arguments: scores [T][S], mask [T][S]. Returns: [T][S], every row summing to 1.
    Raises: ValueError if the shapes differ or a query may attend to no key.
    """
    require_shape("mask", mask, shape_of(scores))
    weights = []
    for i, (row, allowed) in enumerate(zip(scores, mask)):
        visible = [j for j in range(len(row)) if allowed[j]]
        require(visible, f"query {i} may attend to no key")
        weights.append([0.0] * len(row))
        for j, probability in zip(visible, softmax([row[j] for j in visible])):
            weights[i][j] = probability
    return weights


def head_output(weights: Matrix, values: Matrix) -> Matrix:
    """Return o_ic = sum_j w_ij v_jc for weights [T][S], values [S][d_h]; [T][d_h].

    Raises: ValueError if the numbers of keys differ.
    """
    require_shape("values", values, (len(values), len(values[0])))
    columns = [list(column) for column in zip(*values)]
    return [[dot(row, column) for column in columns] for row in weights]


def split_heads(rows: Matrix, n_heads: int) -> list[Matrix]:
    """Return [h][T][d_h] from [T][d]: head n takes the columns n d_h .. (n+1) d_h - 1.

    Raises: ValueError if h does not divide d.
    """
    _, width = shape_of(rows)
    require(n_heads > 0 and width % n_heads == 0, f"{n_heads} heads do not divide width {width}")
    size = width // n_heads
    return [[row[n * size : (n + 1) * size] for row in rows] for n in range(n_heads)]


def merge_heads(heads: list[Matrix]) -> Matrix:
    """Return [T][d] from [h][T][d_h]: the heads of each position side by side, in order.

    Raises: ValueError if the heads differ in shape.
    """
    _, length, _ = shape_of(heads)
    return [[x for head in heads for x in head[t]] for t in range(length)]


def multi_head_attention(
    hidden: Matrix,
    q_weight: Matrix,
    k_weight: Matrix,
    v_weight: Matrix,
    o_weight: Matrix,
    n_heads: int,
    past_key_value=None,
) -> dict:
    """Return every step of causal multi-head self-attention (no biases) of one sequence.

    head_n = softmax(Q_n K_n^T / sqrt(d_h) + causal rule) V_n; output = merge(head_1..h) W_o^T.
    Arguments: hidden [T][d]; the four weights [d][d]; past_key_value None or the pair
        (keys, values) of the earlier positions, each [h][past][d_h].
    Returns: dict of queries [h][T][d_h], keys and values [h][S][d_h] (earlier positions
        first), scores [h][T][S] (scaled, unmasked), mask [T][S], weights [h][T][S],
        head_outputs [h][T][d_h], merged [T][d], output [T][d].
    Raises: ValueError for shapes that do not fit, or h not dividing d.
    """
    queries = split_heads(linear(hidden, q_weight), n_heads)
    keys = split_heads(linear(hidden, k_weight), n_heads)
    values = split_heads(linear(hidden, v_weight), n_heads)
    if past_key_value is not None:
        past_keys, past_values = past_key_value
        size = len(keys[0][0])
        require_shape("past keys", past_keys, (n_heads, len(past_keys[0]), size))
        require_shape("past values", past_values, shape_of(past_keys))
        keys = [past + new for past, new in zip(past_keys, keys)]
        values = [past + new for past, new in zip(past_values, values)]
    mask = causal_mask(len(hidden), len(keys[0]))
    scores = [scaled_scores(q, k) for q, k in zip(queries, keys)]
    weights = [masked_weights(s, mask) for s in scores]
    head_outputs = [head_output(w, v) for w, v in zip(weights, values)]
    merged = merge_heads(head_outputs)
    return {
        "queries": queries,
        "keys": keys,
        "values": values,
        "scores": scores,
        "mask": mask,
        "weights": weights,
        "head_outputs": head_outputs,
        "merged": merged,
        "output": linear(merged, o_weight),
    }


def attention_backward(queries: Matrix, keys: Matrix, values: Matrix, mask, upstream) -> dict:
    """Return the hand-derived gradients of one head, o_i = sum_j w_ij v_j.

    With g = dL/do: dL/dv_j = sum_i w_ij g_i;  dL/dw_ij = g_i . v_j;
    dL/ds_ij = w_ij (dL/dw_ij - sum_m w_im dL/dw_im)  (the softmax Jacobian);
    dL/dq_i = sum_j dL/ds_ij k_j / sqrt(d_h);  dL/dk_j = sum_i dL/ds_ij q_i / sqrt(d_h).
    Arguments: queries [T][d_h], keys [S][d_h], values [S][d_v], mask [T][S],
        upstream [T][d_v].
    Returns: dict of queries, keys, values, weights [T][S], scores [T][S]: each the gradient
        with respect to what it is named after. A blocked key's weight gradient is g_i . v_j,
        its score gradient exactly 0.
    Raises: ValueError for shapes that do not fit or a query that may attend to no key.
    """
    length, total = len(queries), len(keys)
    require_shape("values", values, (total, len(values[0])))
    require_shape("upstream", upstream, (length, len(values[0])))
    weights = masked_weights(scaled_scores(queries, keys), mask)
    scale = 1.0 / math.sqrt(len(queries[0]))

    d_weights = [[dot(g, v) for v in values] for g in upstream]
    d_scores = []
    for w, dw in zip(weights, d_weights):
        mean = dot(w, dw)
        d_scores.append([w[j] * (dw[j] - mean) for j in range(total)])

    d_queries = [[0.0] * len(queries[0]) for _ in range(length)]
    d_keys = [[0.0] * len(keys[0]) for _ in range(total)]
    d_values = [[0.0] * len(values[0]) for _ in range(total)]
    for i in range(length):
        for j in range(total):
            for c in range(len(queries[0])):
                d_queries[i][c] += d_scores[i][j] * keys[j][c] * scale
                d_keys[j][c] += d_scores[i][j] * queries[i][c] * scale
            for c in range(len(values[0])):
                d_values[j][c] += weights[i][j] * upstream[i][c]
    return {
        "queries": d_queries,
        "keys": d_keys,
        "values": d_values,
        "weights": d_weights,
        "scores": d_scores,
    }


# --- layer norm, feed-forward, block --------------------------------------------------------


def normalise(row: Vector, eps: float = LAYER_NORM_EPS) -> tuple[Vector, float]:
    """Return (xhat, sigma): xhat_i = (x_i - mean) / sigma, sigma = sqrt(variance + eps).

    The variance is the population variance: the mean squared deviation, divided by d.
    Raises: ValueError if the row is empty.
    """
    require(len(row) > 0, "cannot normalise an empty row")
    mean = math.fsum(row) / len(row)
    variance = math.fsum((x - mean) ** 2 for x in row) / len(row)
    sigma = math.sqrt(variance + eps)
    return [(x - mean) / sigma for x in row], sigma


def layer_norm(rows: Matrix, gain: Vector, shift: Vector, eps: float = LAYER_NORM_EPS) -> Matrix:
    """Return y_ti = gain_i xhat_ti + shift_i, each row of [T][d] normalised by itself.

    Raises: ValueError if gain or shift is not [d].
    """
    output = []
    for row in rows:
        require_shape("gain", gain, (len(row),))
        require_shape("shift", shift, (len(row),))
        normalised, _ = normalise(row, eps)
        output.append([g * x + b for g, x, b in zip(gain, normalised, shift)])
    return output


def layer_norm_backward(
    rows: Matrix, gain: Vector, upstream: Matrix, eps: float = LAYER_NORM_EPS
) -> dict:
    """Return the hand-derived gradients of layer_norm from upstream g = dL/dy [T][d].

    d xhat_i / d x_j = ([i = j] - 1/d - xhat_i xhat_j / d) / sigma, hence
    dL/dx_tj = sum_i g_ti gain_i d xhat_ti / d x_tj;
    dL/dgain_i = sum_t g_ti xhat_ti;  dL/dshift_i = sum_t g_ti.
    Returns: dict of input [T][d], gain [d], shift [d].
    Raises: ValueError if upstream is not [T][d] or gain not [d].
    """
    require_shape("upstream", upstream, shape_of(rows))
    require_shape("gain", gain, (len(rows[0]),))
    width = len(gain)
    d_input = [[0.0] * width for _ in rows]
    d_gain, d_shift = [0.0] * width, [0.0] * width
    for t, row in enumerate(rows):
        xhat, sigma = normalise(row, eps)
        for i in range(width):
            d_gain[i] += upstream[t][i] * xhat[i]
            d_shift[i] += upstream[t][i]
            for j in range(width):
                same = 1.0 if i == j else 0.0
                jacobian = (same - 1.0 / width - xhat[i] * xhat[j] / width) / sigma
                d_input[t][j] += upstream[t][i] * gain[i] * jacobian
    return {"input": d_input, "gain": d_gain, "shift": d_shift}


def gelu(x: float) -> float:
    """Return x Phi(x) = x (1 + erf(x / sqrt 2)) / 2, the exact form, of one number."""
    return 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0)))


def feed_forward(
    hidden: Matrix, up_weight: Matrix, up_bias: Vector, down_weight: Matrix, down_bias: Vector
) -> dict:
    """Return the steps of the position-wise feed-forward: down(gelu(up(x))).

    Arguments: hidden [T][d], up_weight [f][d], up_bias [f], down_weight [d][f], down_bias [d].
    Returns: dict of up [T][f], activated [T][f], output [T][d].
    Raises: ValueError for shapes that do not fit.
    """
    up = linear(hidden, up_weight, up_bias)
    activated = [[gelu(x) for x in row] for row in up]
    return {"up": up, "activated": activated, "output": linear(activated, down_weight, down_bias)}


def block_forward(hidden: Matrix, parameters: dict, n_heads: int, past_key_value=None) -> dict:
    """Return the steps of one pre-LN block: r = x + attention(ln(x)); y = r + ff(ln(r)).

    Arguments: hidden [T][d]; parameters keyed as inside the block, for instance
        "attention.q_proj.weight"; past_key_value as in multi_head_attention.
    Returns: dict of input, ln_attention, attention (dict), after_attention, ln_feedforward,
        feedforward (dict), output; the plain entries are [T][d].
    Raises: KeyError for a missing parameter; ValueError for shapes that do not fit.
    """
    p = parameters
    ln_attention = layer_norm(hidden, p["ln_attention.weight"], p["ln_attention.bias"])
    attention = multi_head_attention(
        ln_attention,
        p["attention.q_proj.weight"],
        p["attention.k_proj.weight"],
        p["attention.v_proj.weight"],
        p["attention.o_proj.weight"],
        n_heads,
        past_key_value,
    )
    after_attention = add_rows(hidden, attention["output"])
    ln_feedforward = layer_norm(
        after_attention, p["ln_feedforward.weight"], p["ln_feedforward.bias"]
    )
    feedforward = feed_forward(
        ln_feedforward,
        p["feedforward.up_proj.weight"],
        p["feedforward.up_proj.bias"],
        p["feedforward.down_proj.weight"],
        p["feedforward.down_proj.bias"],
    )
    return {
        "input": hidden,
        "ln_attention": ln_attention,
        "attention": attention,
        "after_attention": after_attention,
        "ln_feedforward": ln_feedforward,
        "feedforward": feedforward,
        "output": add_rows(after_attention, feedforward["output"]),
    }


# --- the parameter ledger -------------------------------------------------------------------


def parameter_shapes(
    vocab_size: int, block_size: int, d_model: int, n_layers: int, d_ff: int
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every parameter by its exact name, in the order of the model.

    Raises: ValueError unless every size is positive.
    """
    v, c, d, n, f = vocab_size, block_size, d_model, n_layers, d_ff
    require(min(v, c, d, n, f) > 0, f"sizes must be positive, got {(v, c, d, n, f)}")
    shapes = {"token_embedding.weight": (v, d), "position_embedding.weight": (c, d)}
    for k in range(n):
        shapes[f"blocks.{k}.ln_attention.weight"] = (d,)
        shapes[f"blocks.{k}.ln_attention.bias"] = (d,)
        for letter in "qkvo":
            shapes[f"blocks.{k}.attention.{letter}_proj.weight"] = (d, d)
        shapes[f"blocks.{k}.ln_feedforward.weight"] = (d,)
        shapes[f"blocks.{k}.ln_feedforward.bias"] = (d,)
        shapes[f"blocks.{k}.feedforward.up_proj.weight"] = (f, d)
        shapes[f"blocks.{k}.feedforward.up_proj.bias"] = (f,)
        shapes[f"blocks.{k}.feedforward.down_proj.weight"] = (d, f)
        shapes[f"blocks.{k}.feedforward.down_proj.bias"] = (d,)
    shapes["final_norm.weight"] = (d,)
    shapes["final_norm.bias"] = (d,)
    shapes["head.weight"] = (v, d)
    return shapes


def block_parameter_count(d_model: int, d_ff: int) -> int:
    """Return 4d^2 + 4d + 2df + f + d: q, k, v, o; two norms; two maps; their two biases."""
    d, f = d_model, d_ff
    return 4 * d * d + 4 * d + 2 * d * f + f + d


def parameter_count(
    vocab_size: int, block_size: int, d_model: int, n_layers: int, d_ff: int
) -> int:
    """Return 2Vd + Cd + N block + 2d: untied tables, positions, the blocks, the final norm."""
    block = block_parameter_count(d_model, d_ff)
    return 2 * vocab_size * d_model + block_size * d_model + n_layers * block + 2 * d_model


# --- the whole model ------------------------------------------------------------------------


def check_state(state: dict) -> int:
    """Return the number of layers N of a state dict after checking every name and shape.

    Raises: ValueError naming parameters that are missing, unexpected or of a wrong shape.
    """
    up_bias = "blocks.0.feedforward.up_proj.bias"
    for name in ("token_embedding.weight", "position_embedding.weight", up_bias):
        require(name in state, f"parameters missing {[name]}")
    n_layers = len({name.split(".")[1] for name in state if name.startswith("blocks.")})
    vocab_size, d_model = shape_of(state["token_embedding.weight"])
    block_size, _ = shape_of(state["position_embedding.weight"])
    (d_ff,) = shape_of(state[up_bias])
    expected = parameter_shapes(vocab_size, block_size, d_model, n_layers, d_ff)
    missing, extra = sorted(set(expected) - set(state)), sorted(set(state) - set(expected))
    require(not missing and not extra, f"parameters missing {missing}, unexpected {extra}")
    for name, shape in expected.items():
        require_shape(name, state[name], shape)
    return n_layers


def block_parameters(state: dict, layer: int) -> dict:
    """Return the parameters of block `layer`, keyed without the prefix `blocks.{layer}.`."""
    prefix = f"blocks.{layer}."
    return {name[len(prefix) :]: v for name, v in state.items() if name.startswith(prefix)}


def sequence_forward(tokens: list[int], state: dict, n_heads: int, past_key_values=None) -> dict:
    """Return every step of the decoder on one sequence of token ids [T].

    H^(0) = E[token] + P[past + t]; H^(k+1) = block_k(H^(k)); logits = final_norm(H^(N)) W^T.
    Arguments: state: nested lists by exact parameter name; past_key_values: None or one
        (keys, values) pair a layer, each [h][past][d_h].
    Returns: dict of embedded [T][d], blocks (N dicts of block_forward), final_norm [T][d],
        logits [T][V].
    Raises: ValueError for an empty sequence, an id outside [0, V), a sequence that would pass
        position C, a wrong number of past layers or lengths that differ between them, or a
        state that does not fit.
    """
    n_layers = check_state(state)
    table, positions = state["token_embedding.weight"], state["position_embedding.weight"]
    past = [None] * n_layers if past_key_values is None else past_key_values
    require(len(past) == n_layers, f"{len(past)} past layers for {n_layers} blocks")
    lengths = {0 if pair is None else len(pair[0][0]) for pair in past}
    require(len(lengths) == 1, f"past layers of unequal lengths {sorted(lengths)}")
    (offset,) = lengths
    end = offset + len(tokens)
    require(len(tokens) > 0, "no tokens")
    require(end <= len(positions), f"length {end} is over block_size {len(positions)}")
    for token in tokens:
        require(0 <= token < len(table), f"token id {token} outside [0, {len(table)})")

    embedded = add_rows([table[token] for token in tokens], positions[offset:end])
    hidden, blocks = embedded, []
    for k in range(n_layers):
        blocks.append(block_forward(hidden, block_parameters(state, k), n_heads, past[k]))
        hidden = blocks[k]["output"]
    final = layer_norm(hidden, state["final_norm.weight"], state["final_norm.bias"])
    logits = linear(final, state["head.weight"])
    return {"embedded": embedded, "blocks": blocks, "final_norm": final, "logits": logits}


def stack_steps(steps: list) -> dict | list:
    """Return one dict of steps with a leading batch axis from B dicts of steps.

    The list under "blocks" stays a list of N dicts, each stacked in the same way.
    """
    if not isinstance(steps[0], dict):
        return list(steps)
    stacked = {}
    for name in steps[0]:
        parts = [step[name] for step in steps]
        if name == "blocks":
            stacked[name] = [stack_steps(list(layer)) for layer in zip(*parts)]
        else:
            stacked[name] = stack_steps(parts)
    return stacked


def model_forward(tokens, state: dict, n_heads: int, past_key_values=None) -> dict:
    """Return every step of the decoder on a batch of token ids [B][T].

    Arguments: state and n_heads as in sequence_forward; past_key_values: None or one
        (keys, values) pair a layer, each [B][h][past][d_h].
    Returns: the dict of sequence_forward, every entry (the masks too) with a leading axis B,
        so logits is [B][T][V]; and past_key_values, N pairs of [B][h][S][d_h].
    Raises: ValueError as sequence_forward, or for tokens that are not rectangular.
    """
    shape = shape_of(tokens)
    require(len(shape) == 2 and min(shape) > 0, f"tokens must be [B][T], got shape {shape}")
    steps = []
    for b, sequence in enumerate(tokens):
        past = None
        if past_key_values is not None:
            past = []
            for keys, values in past_key_values:
                batches = (len(keys), len(values))
                require(batches == (shape[0],) * 2, f"cached batches {batches}, tokens {shape[0]}")
                past.append((keys[b], values[b]))
        steps.append(sequence_forward(sequence, state, n_heads, past))
    stacked = stack_steps(steps)
    attentions = [block["attention"] for block in stacked["blocks"]]
    stacked["past_key_values"] = [(a["keys"], a["values"]) for a in attentions]
    return stacked


def model_logits(tokens, state: dict, n_heads: int, past_key_values=None):
    """Return the logits [B][T][V] of model_forward, and raise what it raises."""
    return model_forward(tokens, state, n_heads, past_key_values)["logits"]


# --- the two-layer model by hand ------------------------------------------------------------


def hand_model_state(head_swapped: bool = False) -> dict:
    """Return the two-layer model of V = d = f = C = 2, h = 1, N = 2 as a state dict.

    Embeddings (1,0) and (0,1), zero positions, norms 1 and 0, identity head (or its columns
    swapped). o_proj and down_proj are zero, so both branches add nothing; q, k, v and up_proj
    are the identity, so that their zero gradient follows from the chain rule alone.
    """
    state = {}
    for name, shape in parameter_shapes(2, 2, 2, 2, 2).items():
        if shape == (2,):
            is_gain = name.endswith("weight")
            state[name] = [1.0, 1.0] if is_gain else [0.0, 0.0]
        elif name.startswith("position") or "o_proj" in name or "down_proj" in name:
            state[name] = [[0.0, 0.0], [0.0, 0.0]]
        else:
            state[name] = [[1.0, 0.0], [0.0, 1.0]]
    if head_swapped:
        state["head.weight"] = [[0.0, 1.0], [1.0, 0.0]]
    return state


def hand_model() -> dict:
    """Return the numbers of the two-layer hand model in closed form, without any forward pass.

    Both branches add zero, so H^(2) is (1,0), (0,1). The row (1,0) has mean 1/2 and population
    variance 1/4: its norm is (a, -a) with a = 0.5 / sqrt(0.25 + 1e-5). The targets of A, B are
    B, A, so each position has the wrong logit ahead by 2a: loss ln(1 + e^{2a}); swapping the
    head's columns puts the right one ahead: ln(1 + e^{-2a}). Since ln(1 + e^x) - ln(1 + e^-x)
    = x, the losses differ by exactly 2a.
    Returns: dict of a, tokens, targets, logits [2][2], loss, swapped_logits, swapped_loss,
        difference (= 2a).
    """
    a = 0.5 / math.sqrt(0.25 + LAYER_NORM_EPS)
    return {
        "a": a,
        "tokens": [0, 1],
        "targets": [1, 0],
        "logits": [[a, -a], [-a, a]],
        "loss": math.log(1.0 + math.exp(2.0 * a)),
        "swapped_logits": [[-a, a], [a, -a]],
        "swapped_loss": math.log(1.0 + math.exp(-2.0 * a)),
        "difference": 2.0 * a,
    }


# --- optimisation ---------------------------------------------------------------------------


def central_difference(function, point: Vector, step: float) -> Vector:
    """Return (f(x + step e_i) - f(x - step e_i)) / (2 step) for every coordinate i of x.

    Arguments: function from a list to a float; point, which is not changed; step > 0.
    Raises: ValueError if the step is not positive.
    """
    require(step > 0, f"step must be positive, got {step}")
    gradient = []
    for i in range(len(point)):
        above, below = list(point), list(point)
        above[i] += step
        below[i] -= step
        gradient.append((function(above) - function(below)) / (2.0 * step))
    return gradient


def clip_gradient_norm(gradients: list[Vector], max_norm: float) -> tuple[list[Vector], float]:
    """Return (clipped gradients, norm before clipping) under one global Euclidean norm.

    coefficient = min(1, max_norm / (norm + 1e-6)), applied to every gradient alike.
    Arguments: gradients, one flat list a parameter.
    Raises: ValueError if max_norm is not positive or the norm is not finite.
    """
    require(max_norm > 0, f"max_norm must be positive, got {max_norm}")
    flat = [g for gradient in gradients for g in gradient]
    require(all(math.isfinite(g) for g in flat), "gradient is not finite")
    norm = math.sqrt(dot(flat, flat))
    coefficient = min(1.0, max_norm / (norm + 1e-6))
    return [[coefficient * g for g in gradient] for gradient in gradients], norm


def adamw_step(
    parameters: Vector,
    gradients: Vector,
    first_moments: Vector,
    second_moments: Vector,
    step: int,
    lr: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
) -> tuple[Vector, Vector, Vector]:
    """Return (parameters, first moments, second moments) after AdamW step number `step`.

    p <- p (1 - lr wd);  m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2;
    p <- p - lr mhat / (sqrt(vhat) + eps), mhat = m / (1 - b1^step), vhat = v / (1 - b2^step).
    Arguments: four lists of one length; step counts from 1, where both moments are zero.
    Raises: ValueError for unequal lengths or step < 1.
    """
    lengths = {len(x) for x in (parameters, gradients, first_moments, second_moments)}
    require(len(lengths) == 1, f"lists of unequal lengths {sorted(lengths)}")
    require(step >= 1, f"step counts from 1, got {step}")
    beta1, beta2 = betas
    new_parameters, new_first, new_second = [], [], []
    for p, g, m, v in zip(parameters, gradients, first_moments, second_moments):
        p = p * (1.0 - lr * weight_decay)
        m = beta1 * m + (1.0 - beta1) * g
        v = beta2 * v + (1.0 - beta2) * g * g
        m_hat = m / (1.0 - beta1**step)
        v_hat = v / (1.0 - beta2**step)
        new_parameters.append(p - lr * m_hat / (math.sqrt(v_hat) + eps))
        new_first.append(m)
        new_second.append(v)
    return new_parameters, new_first, new_second


# --- windows of a document ------------------------------------------------------------------


def scored_targets(ids: list[int], block_size: int, stride: int) -> list[tuple]:
    """Return one (start, offset, context, target) for each target, in order of the document.

    The targets are ids[1], ..., ids[-1]. Target number t is scored by the first window start
    s in 0, stride, 2 stride, ... that reaches it (s + 1 <= t <= s + C), at offset t - 1 - s,
    with the context ids[s:t]. Hence each is scored exactly once, whatever the overlap.
    Arguments: ids: one encoded document, BOS ... EOS.
    Raises: ValueError for fewer than two ids, or unless 1 <= stride <= C (a longer stride
        would leave targets out).
    """
    require(len(ids) >= 2, f"a document needs at least BOS and EOS, got {len(ids)} ids")
    require(1 <= stride <= block_size, f"need 1 <= stride <= {block_size}, got {stride}")
    found = []
    for t in range(1, len(ids)):
        start = 0
        while not start + 1 <= t <= start + block_size:
            start += stride
        found.append((start, t - 1 - start, ids[start:t], ids[t]))
    return found


def document_windows(ids: list[int], block_size: int, stride: int) -> list[tuple]:
    """Return the windows (start, x, y) of one document: x = ids[s:s+C], y = ids[s+1:s+C+1].

    Targets that an earlier window scored are -100 in y. A short last window is left short
    (x and y of one length, at most C); windows with nothing to score do not occur.
    Raises: ValueError as scored_targets.
    """
    last = len(ids) - 1  # the last id is a target only
    windows = {}
    for start, offset, _, target in scored_targets(ids, block_size, stride):
        if start not in windows:
            x = ids[start : min(start + block_size, last)]
            windows[start] = (start, x, [IGNORE] * len(x))
        windows[start][2][offset] = target
    return list(windows.values())


# --- counting baselines ---------------------------------------------------------------------


def check_sequence(ids: list[int], vocab_size: int, bos_id: int):
    """Raise ValueError unless ids start with BOS, go on without BOS, and stay in [0, V)."""
    require(len(ids) >= 2 and ids[0] == bos_id, "a sequence starts with BOS and has a target")
    for target in ids[1:]:
        require(target != bos_id, "BOS is never a target")
        require(0 <= target < vocab_size, f"id {target} outside [0, {vocab_size})")


def unigram_probabilities(
    sequences: list[list[int]], vocab_size: int, bos_id: int, k: float
) -> Vector:
    """Return add-k unigram probabilities [V]: p(c) = (n_c + k) / (N + k M), and p(BOS) = 0.

    n_c counts c among the targets ids[1:] of all sequences, N = sum_c n_c, and M = V - 1
    targets are possible: everything but BOS (so UNK, never counted, gets k / (N + k M)).
    Raises: ValueError unless k > 0 and every sequence is BOS followed by targets.
    """
    require(k > 0, f"k must be positive, got {k}")
    counts = [0] * vocab_size
    for ids in sequences:
        check_sequence(ids, vocab_size, bos_id)
        for target in ids[1:]:
            counts[target] += 1
    denominator = sum(counts) + k * (vocab_size - 1)
    probabilities = [(n + k) / denominator for n in counts]
    probabilities[bos_id] = 0.0
    return probabilities


def bigram_probabilities(
    sequences: list[list[int]], vocab_size: int, bos_id: int, k: float, beta: float
) -> Matrix:
    """Return p(c|a) = (n_ac + beta p_uni(c)) / (n_a + beta) as rows [V][V], row a = context.

    n_ac counts c directly after a (BOS is a context), n_a = sum_c n_ac; p_uni is
    unigram_probabilities with the same k. A context never seen falls back to p_uni.
    Raises: ValueError unless beta > 0, and as unigram_probabilities.
    """
    require(beta > 0, f"beta must be positive, got {beta}")
    unigram = unigram_probabilities(sequences, vocab_size, bos_id, k)
    counts = [[0] * vocab_size for _ in range(vocab_size)]
    for ids in sequences:
        for context, target in zip(ids[:-1], ids[1:]):
            counts[context][target] += 1
    return [
        [(n + beta * p) / (sum(row) + beta) for n, p in zip(row, unigram)] for row in counts
    ]


def uniform_nats(ids: list[int], vocab_size: int, bos_id: int) -> tuple[float, int]:
    """Return (count ln V, count) of a sequence: every target costs ln V.

    Raises: ValueError unless the sequence is BOS followed by targets.
    """
    check_sequence(ids, vocab_size, bos_id)
    return (len(ids) - 1) * math.log(vocab_size), len(ids) - 1


def unigram_nats(ids: list[int], probabilities: Vector, bos_id: int) -> tuple[float, int]:
    """Return (sum of -ln p(target), count) of a sequence; probabilities [V].

    Raises: ValueError unless the sequence is BOS followed by targets.
    """
    check_sequence(ids, len(probabilities), bos_id)
    return math.fsum(-math.log(probabilities[target]) for target in ids[1:]), len(ids) - 1


def bigram_nats(ids: list[int], probabilities: Matrix, bos_id: int) -> tuple[float, int]:
    """Return (sum of -ln p(target | the id before it), count); probabilities [V][V].

    Raises: ValueError unless the sequence is BOS followed by targets.
    """
    check_sequence(ids, len(probabilities), bos_id)
    pairs = list(zip(ids[:-1], ids[1:]))
    return math.fsum(-math.log(probabilities[a][c]) for a, c in pairs), len(pairs)
