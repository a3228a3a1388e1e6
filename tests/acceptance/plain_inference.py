"""What tiny models answer when the libraries are used directly, without Corral.

It imports those libraries, which takes seconds: import it late.
"""

from __future__ import annotations

import base64
import io
import wave
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import StableDiffusionPipeline
from PIL import Image
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoModelForTextToWaveform,
    AutoTokenizer,
    BlipForConditionalGeneration,
    BlipProcessor,
)

TEXT = "the quick brown fox"
TEXTS = [TEXT, "a herd"]


def picture() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (40, 30), (200, 10, 10)).save(buffer, "PNG")
    return buffer.getvalue()


ASKS: dict[str, dict[str, Any]] = {
    "generate": {"prompt": TEXT, "max_tokens": 24},
    "embed": {"text": TEXTS},
    "classify": {"text": TEXT},
    "caption": {"image": base64.b64encode(picture()).decode(), "max_tokens": 6},
    "speak": {"text": "good morning", "seed": 5},
    "draw": {"prompt": "a dog", "steps": 2, "seed": 11},
}


@dataclass(frozen=True)
class Written:
    text: str
    prompt_tokens: int
    tokens: int


class Plain:
    """Models of one folder; `check_KIND` compares an answer to `ASKS[KIND]`."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def check(self, kind: str, answer: Any) -> None:
        getattr(self, f"check_{kind}")(answer)

    def write(self, model: str, prompt: str, most: int) -> Written:
        """The likeliest token each time, of so many at most."""
        tokenizer, loaded = self._open(AutoModelForCausalLM, model)
        asked = tokenizer(prompt, return_tensors="pt")
        count = asked["input_ids"].shape[1]
        with torch.inference_mode():
            found = loaded.generate(**asked, max_new_tokens=most, do_sample=False)
        made = [t for t in found[0, count:].tolist() if t != tokenizer.eos_token_id]
        text = str(tokenizer.decode(made, skip_special_tokens=True))
        return Written(text, count, len(made))

    def check_generate(self, answer: Any) -> None:
        made = self.write("writer", TEXT, 24)
        assert answer["text"] == made.text
        counts = (answer["prompt_tokens"], answer["tokens"])
        assert counts == (made.prompt_tokens, made.tokens)

    def check_embed(self, answer: Any) -> None:
        """One text at a time, so that nothing is padded; the mean, of length one."""
        tokenizer, model = self._open(AutoModel, "reader")
        vectors = []
        for text in TEXTS:
            with torch.inference_mode():
                found = model(**tokenizer(text, return_tensors="pt")).last_hidden_state
            mean = found[0].mean(dim=0)
            vectors.append((mean / mean.norm()).tolist())
        np.testing.assert_allclose(answer["embeddings"], vectors, atol=1e-4)

    def check_classify(self, answer: Any) -> None:
        tokenizer, model = self._open(AutoModelForSequenceClassification, "judge")
        with torch.inference_mode():
            found = model(**tokenizer(TEXT, return_tensors="pt")).logits[0].softmax(0)
        scores = found.tolist()
        names = [model.config.id2label[i] for i in range(len(scores))]
        assert answer["label"] == names[int(np.argmax(scores))]
        told = {each["label"]: each["score"] for each in answer["labels"]}
        np.testing.assert_allclose([told[n] for n in names], scores, atol=1e-4)

    def check_caption(self, answer: Any) -> None:
        folder = str(self._place / "seer")
        processor = BlipProcessor.from_pretrained(folder)
        model = BlipForConditionalGeneration.from_pretrained(folder).eval()
        image = Image.open(io.BytesIO(picture()))
        asked = processor(images=image, return_tensors="pt")
        with torch.inference_mode():
            found = model.generate(**asked, max_new_tokens=6, do_sample=False)
        text = processor.tokenizer.decode(found[0], skip_special_tokens=True)
        assert answer["caption"] == text.strip() != ""
        assert answer["image_size"] == [40, 30]

    def check_speak(self, answer: Any) -> None:
        tokenizer, model = self._open(AutoModelForTextToWaveform, "voice")
        torch.manual_seed(5)
        with torch.inference_mode():
            made = model(**tokenizer(text="good morning", return_tensors="pt"))
        samples = np.clip(made.waveform[0].numpy(), -1.0, 1.0) * 32767
        with wave.open(io.BytesIO(base64.b64decode(answer["audio"]))) as file:
            assert file.getframerate() == model.config.sampling_rate
            assert file.getnframes() == len(samples) > 0
            heard = np.frombuffer(file.readframes(len(samples)), "<i2")
        np.testing.assert_allclose(heard, samples, atol=33)

    def check_draw(self, answer: Any) -> None:
        pipeline = StableDiffusionPipeline.from_pretrained(str(self._place / "painter"))
        pipeline.set_progress_bar_config(disable=True)
        chance = torch.Generator().manual_seed(11)
        made = pipeline("a dog", num_inference_steps=2, generator=chance).images[0]
        with Image.open(io.BytesIO(base64.b64decode(answer["image"]))) as image:
            assert (image.format, image.size) == ("PNG", (16, 16))
            seen = np.asarray(image).astype(int)
        np.testing.assert_allclose(seen, np.asarray(made).astype(int), atol=2)

    def _open(self, auto: Any, model: str) -> tuple[Any, Any]:
        folder = str(self._place / model)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        return tokenizer, auto.from_pretrained(folder).eval()
