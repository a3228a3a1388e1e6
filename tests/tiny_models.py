"""Real models with random weights, small enough to make in a test.

They say nothing sensible, but load, answer and take memory as large ones do.
"""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BlipConfig,
    BlipForConditionalGeneration,
    BlipImageProcessorPil,
    BlipProcessor,
    CLIPTextConfig,
    CLIPTextModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    SpeechT5Config,
    SpeechT5ForTextToSpeech,
    SpeechT5HifiGan,
    SpeechT5HifiGanConfig,
    VitsConfig,
    VitsTokenizer,
)
from transformers.utils import logging as chatter

CHAT = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
# A bar that fills up would be in the way of what tests print.
chatter.disable_progress_bar()
# Models this small only wait for each other on several cores.
torch.set_num_threads(1)
_CORPUS = [
    "the quick brown fox jumps over the lazy dog",
    "a herd of horses stands in the corral and waits for the morning",
    "user: hello assistant: good day, what shall we do with the drunken sailor",
]


def bytes_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE, as models that write have: a letter may be several tokens."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<pad>", "<end>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(_CORPUS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<end>", chat_template=CHAT
    )


def words_tokenizer() -> PreTrainedTokenizerFast:
    """Words between marks, as models that read have.

    Whole words: training of word pieces does not give the same ones each time.
    """
    made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordLevelTrainer(special_tokens=marks, show_progress=False)
    made.train_from_iterator(_CORPUS, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


def save_writer(
    folder: Path,
    *,
    seed: int = 0,
    width: int = 32,
    layers: int = 2,
    longest: int = 128,
    is_endless: bool = False,
) -> Path:
    """A model that writes text, of `longest` tokens at most; an endless one does not
    choose to end it sooner.
    """
    torch.manual_seed(seed)
    tokenizer = bytes_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=longest,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
        # Less for wide ones, or the last digits would decide what they say.
        initializer_range=0.3 * (32 / width) ** 0.5,
    )
    model = LlamaForCausalLM(config)
    if is_endless:
        model.lm_head.weight.data[tokenizer.eos_token_id] = 0.0
    return _save(folder, model, tokenizer)


def _reader_config(**more: Any) -> BertConfig:
    return BertConfig(
        vocab_size=len(words_tokenizer()),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
        **more,
    )


def save_reader(folder: Path) -> Path:
    torch.manual_seed(1)
    return _save(folder, BertModel(_reader_config()), words_tokenizer())


def save_judge(folder: Path) -> Path:
    torch.manual_seed(2)
    names = {0: "calm", 1: "wild", 2: "tame"}
    config = _reader_config(id2label=names, num_labels=3)
    return _save(folder, BertForSequenceClassification(config), words_tokenizer())


def save_seer(folder: Path) -> Path:
    """A model that says what is on an image."""
    torch.manual_seed(3)
    tokenizer = words_tokenizer()
    small = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    text = {
        **small,
        "vocab_size": len(tokenizer),
        "encoder_hidden_size": 32,
        "max_position_embeddings": 64,
        "bos_token_id": 2,
        "pad_token_id": 0,
        "eos_token_id": 3,
        "sep_token_id": 3,
        "projection_dim": 32,
    }
    vision = {**small, "image_size": 32, "patch_size": 16, "projection_dim": 32}
    config = BlipConfig(text_config=text, vision_config=vision, projection_dim=32)
    eyes = BlipImageProcessorPil(size={"height": 32, "width": 32})
    processor = BlipProcessor(eyes, tokenizer)
    return _save(folder, BlipForConditionalGeneration(config), processor)


def save_voice(folder: Path) -> Path:
    """A model that speaks letters."""
    with warnings.catch_warnings():
        # It compiles parts of itself in a way that torch has marked as old.
        warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated")
        from transformers import VitsModel
    torch.manual_seed(4)
    folder.mkdir(parents=True)
    letters = "_ abcdefghijklmnopqrstuvwxyz'"
    vocabulary = folder / "letters.json"
    vocabulary.write_text(json.dumps({c: i for i, c in enumerate(letters)}))
    tokenizer = VitsTokenizer(
        str(vocabulary), pad_token="_", unk_token="'", phonemize=False, is_uroman=False
    )
    config = VitsConfig(
        vocab_size=len(letters),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        ffn_dim=32,
        flow_size=16,
        spectrogram_bins=9,
        upsample_initial_channel=16,
        upsample_rates=[8, 8],
        upsample_kernel_sizes=[16, 16],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
        prior_encoder_num_flows=2,
        prior_encoder_num_wavenet_layers=1,
        posterior_encoder_num_wavenet_layers=1,
        duration_predictor_num_flows=2,
        duration_predictor_filter_channels=16,
        depth_separable_num_layers=2,
        wavenet_dilation_rate=1,
        num_speakers=2,
        speaker_embedding_size=8,
        sampling_rate=8000,
    )
    return _save(folder, VitsModel(config), tokenizer)


def save_narrator(folder: Path) -> Path:
    """A model that makes pictures of sound, its vocoder, and two voices."""
    torch.manual_seed(6)
    tokenizer = bytes_tokenizer()
    config = SpeechT5Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        encoder_layers=1,
        encoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_layers=1,
        decoder_attention_heads=2,
        decoder_ffn_dim=32,
        initializer_range=0.5,
        speech_decoder_prenet_layers=1,
        speech_decoder_prenet_units=16,
        speech_decoder_postnet_layers=1,
        speech_decoder_postnet_units=16,
        speaker_embedding_dim=8,
        num_mel_bins=10,
        max_text_positions=32,
    )
    _save(folder, SpeechT5ForTextToSpeech(config), tokenizer)
    vocoder = SpeechT5HifiGanConfig(
        model_in_dim=10,
        initializer_range=0.5,
        upsample_initial_channel=8,
        upsample_rates=[4, 4],
        upsample_kernel_sizes=[8, 8],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1, 3]],
    )
    SpeechT5HifiGan(vocoder).save_pretrained(str(folder / "vocoder"))
    voices = {"anna": torch.ones(8), "otto": -torch.ones(8)}
    save_file(voices, str(folder / "voices.safetensors"))
    return folder


def save_painter(folder: Path) -> Path:
    """A pipeline from text to an image of 16 by 16."""
    # Late: it takes seconds to import.
    from diffusers import (
        AutoencoderKL,
        DDIMScheduler,
        StableDiffusionPipeline,
        UNet2DConditionModel,
    )

    torch.manual_seed(5)
    tokenizer = words_tokenizer()
    tokenizer.model_max_length = 16
    unet = UNet2DConditionModel(
        block_out_channels=(8, 16),
        layers_per_block=1,
        sample_size=8,
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=2,
    )
    vae = AutoencoderKL(
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        sample_size=16,
    )
    encoder = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=16,
            bos_token_id=2,
            eos_token_id=3,
            pad_token_id=0,
        )
    )
    StableDiffusionPipeline(
        vae=vae,
        text_encoder=encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=DDIMScheduler(steps_offset=1, clip_sample=False),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    ).save_pretrained(str(folder))
    return folder


def export_graph(folder: Path, source: Path, *, is_judge: bool) -> Path:
    """The graph of a model that reads, with what belongs to it."""
    auto = AutoModelForSequenceClassification if is_judge else AutoModel
    model = auto.from_pretrained(str(source)).eval()

    class Bare(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            made = self.model(input_ids=input_ids, attention_mask=attention_mask)
            return made.logits if is_judge else made.last_hidden_state

    folder.mkdir(parents=True)
    names = ["input_ids", "attention_mask"]
    example = torch.ones(2, 5, dtype=torch.long)
    with warnings.catch_warnings():
        # The exporter that needs no further package is the older one.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Bare(),
            (example, example),
            str(folder / "model.onnx"),
            input_names=names,
            output_names=["found"],
            dynamic_axes={name: {0: "texts", 1: "tokens"} for name in names},
            dynamo=False,
        )
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(source / name, folder / name)
    return folder


def _save(folder: Path, model: Any, reader: Any) -> Path:
    model.eval().save_pretrained(str(folder))
    reader.save_pretrained(str(folder))
    return folder
