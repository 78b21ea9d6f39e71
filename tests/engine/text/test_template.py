"""Chat templates are foreign code: sandboxed, and their refusals are the client's errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core.errors import ModelError, RequestError
from engine.text.template import ChatTemplate, find_template

USER = [{"role": "user", "content": "hi"}]
SIMPLE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def test_renders_messages_and_opens_the_assistants_turn() -> None:
    assert ChatTemplate(SIMPLE, {"bos_token": "<s>"}).render(USER, None) == "<s><user>hi\n<assistant>"


def test_tools_reach_the_template_as_json() -> None:
    template = ChatTemplate("{% if tools %}{{ tools | tojson }}{% endif %}", {})
    assert template.render(USER, [{"name": "é"}]) == '[{"name": "é"}]'
    assert template.render(USER, []) == ""


def test_templates_may_say_how_json_is_written() -> None:
    template = ChatTemplate(
        "{{ tools | tojson(ensure_ascii=True, separators=(',', ':'), sort_keys=True) }}", {}
    )
    assert template.render(USER, [{"b": 1, "a": "é"}]) == '[{"a":"\\u00e9","b":1}]'
    assert ChatTemplate("{{ tools | tojson(indent=1) }}", {}).render(USER, [1]) == "[\n 1\n]"


def test_marks_of_what_an_assistant_said_are_no_text() -> None:
    source = "{% for m in messages %}{% generation %}<{{ m.content }}>{% endgeneration %}{% endfor %}"
    assert ChatTemplate(source, {}).render(USER, None) == "<hi>"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[7].content }}",
        "{{ messages[0].content + 1 }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
    ],
)
def test_what_a_template_refuses_or_may_not_do_is_a_request_error(source: str) -> None:
    with pytest.raises(RequestError) as e:
        ChatTemplate(source, {}).render(USER, None)
    assert (e.value.status, e.value.code) == (400, "invalid_request")


def test_a_template_that_does_not_parse_is_the_models_fault() -> None:
    with pytest.raises(ModelError):
        ChatTemplate("{% for %}", {})


def test_a_template_file_wins_over_the_config(tmp_path: Path) -> None:
    assert find_template(tmp_path, {}) is None
    assert find_template(tmp_path, {"chat_template": "c"}) == "c"
    listed = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert find_template(tmp_path, {"chat_template": listed}) == "d"
    (tmp_path / "chat_template.jinja").write_text("f")
    assert find_template(tmp_path, {"chat_template": "c"}) == "f"
