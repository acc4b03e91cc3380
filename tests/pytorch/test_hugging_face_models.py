"""Models of Hugging Face, made from small configurations: each step is that of one record at a time."""

import warnings

import pytest
import torch
from torch.nn import functional as F

from tests.pytorch.layer_cases import assert_step

transformers = pytest.importorskip("transformers")

RECORDS, END = 6, 2
SMALL = {"vocab_size": 20, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "num_labels": 3}
SMALL |= {"num_hidden_layers": 2, "max_position_embeddings": 32, "pad_token_id": 0}
STILL = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
IMAGES = {"image_size": 8, "patch_size": 4, "num_channels": 2} | STILL
BART = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "dropout": 0.0}
BART |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "eos_token_id": END}
T5 = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2, "dropout_rate": 0.0}
OPT = {"ffn_dim": 16, "word_embed_proj_dim": 8, "dropout": 0.0}
GPT2 = {"n_embd": 8, "n_layer": 2, "n_head": 2, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}

# What a model is called with, its settings, and whether a part of it is run for each record alone.
MODELS = {
    "BertForSequenceClassification": ("Bert", "input_ids", STILL, False),
    "RobertaForSequenceClassification": ("Roberta", "input_ids", STILL, False),
    "AlbertForSequenceClassification": (
        "Albert",
        "input_ids",
        STILL | {"embedding_size": 8, "classifier_dropout_prob": 0.0},
        False,
    ),
    "GPT2LMHeadModel": ("GPT2", "input_ids", GPT2, False),
    "LlamaForCausalLM": ("Llama", "input_ids", {}, False),
    "OPTForCausalLM": ("OPT", "input_ids", OPT, False),
    "T5ForConditionalGeneration": ("T5", "decoder_input_ids", T5, True),
    "BartForSequenceClassification": ("Bart", "input_ids", BART, True),
    "ViTForImageClassification": ("ViT", "pixel_values", IMAGES, False),
}


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def inputs_of(what, length):
    if what == "pixel_values":
        return torch.randn(RECORDS, 2, 8, 8)
    words = torch.randint(3, 20, (RECORDS, length))
    words[:, -1] = END
    return words


@pytest.mark.parametrize("length", [5, RECORDS])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_is_that_of_one_record_at_a_time(name, length):
    """Also where there are as many records as words, which no shape tells apart."""
    kind, what, settings, widened = MODELS[name]
    torch.manual_seed(0)
    model = getattr(transformers, name)(getattr(transformers, f"{kind}Config")(**SMALL | settings))

    def call(x):
        both = {"input_ids": x} if what == "decoder_input_ids" else {}
        answer = model(**both, **{what: x}).logits
        return answer if answer.dim() == 2 else answer[:, -1]

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert_step(model.train(), (inputs_of(what, length), torch.arange(RECORDS) % 3), F.cross_entropy, call=call)
    assert any("is run for each record alone" in str(one.message) for one in caught) == widened
