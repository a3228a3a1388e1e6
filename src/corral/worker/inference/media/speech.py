"""Speech with transformers: models that make sound of text (VITS), or pictures of
sound that a second model makes audible (SpeechT5, with its vocoder in vocoder/).
"""

from __future__ import annotations

import base64
import io
import wave
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModelForTextToWaveform,
    SpeechT5ForTextToSpeech,
    SpeechT5HifiGan,
)

from corral.worker.inference.call import Loaded, ModelCall
from corral.worker.inference.errors import RequestRefused, Unusable
from corral.worker.inference.kind import ModelKind
from corral.worker.inference.load import pretrained
from corral.worker.inference.load.device_map import DevicePlan
from corral.worker.inference.load.resolve import ModelRef
from corral.worker.inference.request import Speak

_RATE = 16_000
_VOICES = "voices.safetensors"


def load_speech(ref: ModelRef, plan: DevicePlan) -> Loaded:
    """Whichever of the two it is. In full precision: half of it is heard."""
    with pretrained.explained(ref):
        options = pretrained.options_of(ref)
        config = AutoConfig.from_pretrained(str(ref.folder), **options)
    plan = replace(plan, dtype="float32")
    made: type[WaveModel | SpectrumModel] = (
        SpectrumModel if config.model_type == "speecht5" else WaveModel
    )
    return made(ref, plan)


class _Speaker(pretrained.TorchModel):
    kind = ModelKind.SPEAK
    _tokenizer: Any
    _model: Any

    def measure(self, call: ModelCall) -> int:
        text = _request(call).text
        ids = self._tokenizer(text=text, verbose=False)["input_ids"]
        if not len(ids):
            raise RequestRefused("text: it has no letter that the model can speak")
        longest = pretrained.longest(self._model, self._tokenizer)
        if longest is not None and len(ids) > longest:
            raise RequestRefused(
                f"text: it has {len(ids)} tokens, and the model takes {longest}; "
                "send it in parts"
            )
        return len(ids)

    def likeness(self, call: ModelCall) -> object:
        return None

    def run(self, calls: list[ModelCall]) -> list[dict[str, Any]]:
        answers = []
        for call in calls:
            request = _request(call)
            if request.seed is not None:
                torch.manual_seed(request.seed)
            with torch.inference_mode():
                sound, rate = self._speak(request)
            answers.append(_answer(_shift(sound, request.pitch), rate))
        return answers

    def _speak(self, request: Speak) -> tuple[Any, int]:
        raise NotImplementedError


class WaveModel(_Speaker):
    """VITS and its like."""

    def __init__(self, ref: ModelRef, plan: DevicePlan) -> None:
        self._tokenizer = pretrained.load_tokenizer(ref)
        self._model = pretrained.load_model(AutoModelForTextToWaveform, ref, plan)
        self._usual = float(getattr(self._model.config, "speaking_rate", 1.0))
        super().__init__(self._model)

    def _speak(self, request: Speak) -> tuple[Any, int]:
        inputs = self._tokenizer(text=request.text, return_tensors="pt")
        # Spoken slower by what the pitch will make it faster.
        self._model.speaking_rate = self._usual * request.speed / request.pitch
        found = self._model(
            **pretrained.on_device(inputs, self._model.device), **self._voice(request)
        )
        rate = int(self._model.config.sampling_rate)
        return found.waveform[0].float().cpu().numpy(), rate

    def _voice(self, request: Speak) -> dict[str, int]:
        count = int(getattr(self._model.config, "num_speakers", 1))
        told = request.voice
        if told in (None, "", "default"):
            return {}
        if not str(told).isdecimal() or not 0 <= int(str(told)) < count:
            raise RequestRefused(f"voice: {told!r} is unknown; known: 0 to {count - 1}")
        return {"speaker_id": int(str(told))} if count > 1 else {}


class SpectrumModel(_Speaker):
    """SpeechT5; its voices are vectors by name in voices.safetensors."""

    def __init__(self, ref: ModelRef, plan: DevicePlan) -> None:
        self._tokenizer = pretrained.load_tokenizer(ref)
        self._model = pretrained.load_model(SpeechT5ForTextToSpeech, ref, plan)
        if not (ref.folder / "vocoder").is_dir():
            text = f"model {ref.name} has no folder vocoder, which makes it audible"
            raise Unusable(text, "unsupported_model")
        beside = replace(ref, folder=ref.folder / "vocoder")
        self._vocoder = pretrained.load_model(SpeechT5HifiGan, beside, plan)
        self._voices = _read_voices(ref.folder / _VOICES)
        super().__init__(self._model, self._vocoder)

    def _speak(self, request: Speak) -> tuple[Any, int]:
        if request.speed != 1.0 or request.pitch != 1.0:
            raise RequestRefused(
                "speed, pitch: this model speaks as it does; leave them out"
            )
        ids = self._tokenizer(text=request.text, return_tensors="pt")["input_ids"]
        device = self._model.device
        sound = self._model.generate_speech(
            ids.to(device), self._voice(request).to(device), vocoder=self._vocoder
        )
        rate = getattr(self._vocoder.config, "sampling_rate", _RATE)
        return sound.float().cpu().numpy(), int(rate)

    def _voice(self, request: Speak) -> Any:
        width = self._model.config.speaker_embedding_dim
        told = request.voice
        if told in (None, "", "default"):
            return next(iter(self._voices.values()), torch.zeros(1, width))
        if str(told) not in self._voices:
            known = ", ".join(self._voices) or "none"
            raise RequestRefused(f"voice: {told!r} is unknown; known: {known}")
        return self._voices[str(told)]


def _request(call: ModelCall) -> Speak:
    assert isinstance(call.request, Speak)
    return call.request


def _read_voices(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    return {name: voice.reshape(1, -1) for name, voice in load_file(str(file)).items()}


def _shift(sound: Any, pitch: float) -> Any:
    """Higher by `pitch`: the same waves in less time."""
    if pitch == 1.0 or len(sound) < 2:
        return sound
    where = np.arange(0, len(sound) - 1, pitch)
    return np.interp(where, np.arange(len(sound)), sound)


def _answer(sound: Any, rate: int) -> dict[str, Any]:
    level = (np.clip(np.nan_to_num(sound), -1.0, 1.0) * 32767).astype("<i2")
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(level.tobytes())
    return {
        "audio": base64.b64encode(buffer.getvalue()).decode("ascii"),
        "format": "wav",
        "sample_rate": rate,
        "duration_s": len(level) / rate,
    }
