"""Chapters 4 and 10: the fused kernels are used when asked for, on the device of the input."""

import pytest
import torch
from torch.nn import functional as F

from course_lib import attention, block, model
from tests import models

B, H, T, K = 3, 2, 5, 11


@pytest.fixture
def fused_calls(monkeypatch):
    """Return a list that grows with each call of torch's own attention or LayerNorm."""
    calls = []

    def counted(name):
        original = getattr(F, name)

        def function(*args, **kwargs):
            calls.append(name)
            return original(*args, **kwargs)

        monkeypatch.setattr(F, name, function)

    counted("scaled_dot_product_attention")
    counted("layer_norm")
    return calls


def test_attend_hands_the_fused_formula_to_torch_and_no_other(fused_calls):
    heads = models.normal(B, H, T, K)
    attention.attend(heads, heads, heads)
    attention.attend(heads, heads, heads, kernels="explicit")
    assert fused_calls == []
    attention.attend(heads, heads, heads, kernels="fused")
    assert fused_calls == ["scaled_dot_product_attention"]


def test_a_fused_attention_module_uses_the_fused_formula(fused_calls):
    layer = attention.CausalSelfAttention(models.CONFIG, "fused").double()
    layer(models.normal(B, T, models.CONFIG.d_model))
    assert fused_calls == ["scaled_dot_product_attention"]


def test_a_fused_block_uses_both_fused_formulas(fused_calls):
    layer = block.TransformerBlock(models.CONFIG, "fused").double()
    layer(models.normal(B, T, models.CONFIG.d_model))
    assert fused_calls == ["layer_norm", "scaled_dot_product_attention", "layer_norm"]


def test_a_fused_model_is_fused_throughout(fused_calls):
    lm = model.TransformerLM(models.CONFIG, "fused").double()
    lm(models.random_ids(B, T))
    one_block = ["layer_norm", "scaled_dot_product_attention", "layer_norm"]
    assert fused_calls == [*one_block * models.CONFIG.n_layers, "layer_norm"]


def test_modules_are_explicit_unless_told_otherwise(fused_calls):
    hidden = models.normal(B, T, models.CONFIG.d_model)
    attention.CausalSelfAttention(models.CONFIG).double()(hidden)
    block.LayerNorm(models.CONFIG.d_model).double()(hidden)
    block.TransformerBlock(models.CONFIG).double()(hidden)
    model.TransformerLM(models.CONFIG).double()(models.random_ids(B, T))
    assert fused_calls == []


@pytest.mark.parametrize("kernels", attention.KERNELS)
def test_the_mask_is_made_on_the_device_of_the_queries(kernels):
    # "meta" is a device without numbers: tensors of two devices are refused there too.
    heads = torch.empty(B, H, T, K, device="meta")
    assert attention.causal_mask(T, T, device="meta").device == heads.device
    assert attention.attend(heads, heads, heads, kernels=kernels).device == heads.device
