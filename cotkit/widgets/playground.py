"""PromptPlayground: one prompt on one problem, seen as it is sent, tried, and what it took.

    PromptPlayground({"teacher": teacher, "student": cotkit.local_model()}, problems)

Choose a model, a prompt and a problem; the messages are shown as they will be sent; Try asks once. The
answer comes with its verdict, tokens, cost and time. `ModelPicker` is the part that chooses the model.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from cotkit import aio, prompts
from cotkit.chat import ChatModel, ModelError
from cotkit.problems import Problem
from cotkit.records import Completion, Verdict
from cotkit.shown import mended
from cotkit.verify import AnswerVerifier, SandboxTooWeak
from cotkit.widgets.base import Widget, button, facts, mathematics, named, text

VALUES = ("problem", "few_shot", "trace", "feedback", "answer")


class ModelPicker(Widget):
    """models: {name: ChatModel}. `model` is the one that is chosen."""

    def __init__(self, models: Mapping[str, ChatModel]):
        if not models:
            raise ValueError("there is no model to pick: give {name: ChatModel}")
        self.models, self.name = dict(models), next(iter(models))

    @property
    def model(self) -> ChatModel:
        return self.models[self.name]

    def pick(self, name: str) -> None:
        if name not in self.models:
            raise ValueError(f"there is no model {name!r}; there are: {', '.join(self.models)}")
        self.name = name
        self.redraw()

    def static(self) -> str:
        return f"<div><b>{text(self.name)}</b></div>{self.model._repr_html_()}"

    def build(self) -> list[Any]:
        import ipywidgets as w

        self._choice, self._shown = w.Dropdown(options=named(self.models), description="model"), w.HTML()
        self.heed(self._choice, self.pick)
        return [self._choice, self._shown]

    def draw(self) -> None:
        self._choice.value, self._shown.value = self.name, self.static()

    def __repr__(self) -> str:
        return f"ModelPicker({self.name!r} of {', '.join(self.models)})"


class PromptPlayground(Widget):
    """models: {name: ChatModel}; problems: what is tried; prompt: Jinja2 text, default the shipped one.

    `messages()` is what would be sent, `try_it()` sends it.
    """

    def __init__(
        self, models: Mapping[str, ChatModel], problems: Sequence[Problem], prompt: str | None = None
    ):
        if not problems:
            raise ValueError("there is no problem to try: give problems")
        self.picker, self.problems = ModelPicker(models), list(problems)
        self.prompt = prompt if prompt is not None else prompts.load("reasoning").source
        self.place, self.temperature, self.max_tokens = 0, 0.7, 512
        self.answer: Completion | None = None
        self.verdict: Verdict | None = None
        self.error = ""

    @property
    def problem(self) -> Problem:
        return self.problems[self.place]

    def messages(self) -> list[dict[str, str]]:
        """Raises ValueError when the prompt cannot be rendered."""
        values: dict[str, Any] = dict.fromkeys(VALUES)
        try:
            return prompts.Prompt("playground", self.prompt).messages(
                **{**values, "problem": self.problem.problem}
            )
        except jinja2.TemplateError as error:
            raise ValueError(f"the prompt cannot be rendered: {error}") from None

    def try_it(self) -> Completion | None:
        """Asks once; the answer, its verdict or the error are kept and shown. A failed call gives None."""
        self.answer, self.verdict, self.error = None, None, ""
        try:
            self.answer = aio.run(
                self.picker.model.acomplete(
                    self.messages(), temperature=self.temperature, max_tokens=self.max_tokens
                )
            )
            given, cut = self.answer.text, self.answer.truncated
            _, self.verdict = aio.run(AnswerVerifier().averify(self.problem, given, truncated=cut))
        except (ModelError, SandboxTooWeak, ValueError) as error:
            self.error = str(error)
        self.redraw()
        return self.answer

    def static(self) -> str:
        try:
            sent = "".join(
                f"<b>{m['role']}</b><div class='ck-words'>{mathematics(m['content'])}</div>"
                for m in self.messages()
            )
        except ValueError as error:
            sent = f"<div>{text(error)}</div>"
        return f"<details open><summary>what is sent</summary>{sent}</details>{self._answered()}"

    def _answered(self) -> str:
        if self.error:
            return f"<div role='alert'><b>failed:</b> {text(self.error)}</div>"
        if self.answer is None:
            return ""
        usage = self.answer.usage
        took = {
            "verdict": f"{self.verdict.in_words} ({self.verdict.method}: {self.verdict.reason})",
            "prompt tokens": usage.prompt_tokens,
            "completion tokens": usage.completion_tokens,
            "cost": "unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4g}",
            "seconds": f"{self.answer.latency_s:.1f}",
            "cut off": "yes" if self.answer.truncated else None,
        }
        return f"<div class='ck-words'>{mathematics(self.answer.trace)}</div>{facts(took)}"

    def build(self) -> list[Any]:
        import ipywidgets as w

        names = [(f"{p.id}: {p.problem[:60]}", place) for place, p in enumerate(self.problems[:500])]
        whole = {"description_width": "initial"}
        self._asked = {
            "place": w.Dropdown(options=named(names), description="problem", layout={"width": "auto"}),
            "prompt": w.Textarea(description="prompt", rows=8, layout={"width": "95%"}),
            "temperature": w.BoundedFloatText(min=0, max=2, step=0.1, description="temperature", style=whole),
            "max_tokens": w.BoundedIntText(min=1, max=1_000_000, description="max tokens"),
        }
        for name, control in self._asked.items():
            self.heed(control, functools.partial(self._set, name))
        self._shown = w.HTMLMath()
        self._try = button("Try it", self._try_it, tooltip="Ask the chosen model once", style="primary")
        problem, prompt, *numbers = self._asked.values()
        return [self.picker.view, problem, prompt, w.HBox([*numbers, self._try]), self._shown]

    def draw(self) -> None:
        for name, control in self._asked.items():
            control.value = mended(getattr(self, name))
        self._shown.value = self.static()

    def _try_it(self) -> None:
        self._try.disabled, self._try.description = True, "Asking ..."
        try:
            self.try_it()
        finally:
            self._try.disabled, self._try.description = False, "Try it"

    def _set(self, name: str, value: Any) -> None:
        setattr(self, name, value)
        self.redraw()

    def __repr__(self) -> str:
        return f"PromptPlayground({self.picker.name!r}, problem {self.problem.id!r})"
