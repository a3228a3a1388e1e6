"""What tasks before one answered stands in its request, or it is said what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from corral.worker.inference.chain import filled
from corral.worker.inference.errors import RequestRefused

ONE: dict[str, Any] = {"t-1": {"caption": "a horse", "size": [2, 3]}}
TWO = {**ONE, "t-2": {"result": {"generated_text": "it runs"}}}


@pytest.mark.parametrize(
    ("text", "inputs", "said"),
    [
        ("on it: {{caption}}.", ONE, "on it: a horse."),
        ("{{ t-1.caption }} {{size}}", ONE, "a horse [2, 3]"),
        ("{{t-1.caption}}: {{t-2.generated_text}}", TWO, "a horse: it runs"),
        ("{{caption}}", {}, "{{caption}}"),
        ("{caption} {{two words}}", ONE, "{caption} {{two words}}"),
    ],
)
def test_fields_of_answers_stand_in_any_text(
    text: str, inputs: dict[str, Any], said: str
) -> None:
    asked = {"messages": [{"content": text}], "max_tokens": 3}
    assert filled(asked, inputs) == {"messages": [{"content": said}], "max_tokens": 3}


@pytest.mark.parametrize(
    ("text", "inputs", "said"),
    [
        ("{{captoin}}", ONE, "the answer of task t-1 has no field captoin"),
        ("{{caption}}", TWO, "it depends on several tasks; say {{ID.caption}}"),
        ("{{t-9.caption}}", ONE, "it does not depend on a task t-9"),
        ("{{caption}}", {"t-1": "words"}, "has no field caption"),
    ],
)
def test_what_no_answer_has_is_refused(
    text: str, inputs: dict[str, Any], said: str
) -> None:
    with pytest.raises(RequestRefused) as found:
        filled({"prompt": text}, inputs)
    assert said in str(found.value)
