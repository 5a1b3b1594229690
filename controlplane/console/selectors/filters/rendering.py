"""The fields of a filter as HTML. The framework renders a template for each, for each option and for each attribute:
that was a tenth of what a page of a list costs."""

from collections.abc import Callable
from typing import Any

from django.forms.renderers import DjangoTemplates
from django.forms.utils import flatatt
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString


def write_input(widget: dict[str, Any]) -> SafeString:
    value = {} if widget["value"] is None else {"value": widget["value"]}
    return format_html(
        "<input{}>", flatatt({"type": widget["type"], "name": widget["name"], **value, **widget["attrs"]})
    )


def write_select(widget: dict[str, Any]) -> SafeString:
    options = [option for _, group, _ in widget["optgroups"] for option in group]
    written = format_html_join(
        "",
        "<option{}>{}</option>",
        ((flatatt({"value": row["value"], **row["attrs"]}), row["label"]) for row in options),
    )
    return format_html("<select{}>{}</select>", flatatt({"name": widget["name"], **widget["attrs"]}), written)


WRITERS: dict[str, Callable[[dict[str, Any]], SafeString]] = {
    **{
        f"django/forms/widgets/{name}.html": write_input
        for name in ("text", "number", "hidden", "checkbox", "datetime")
    },
    "django/forms/widgets/select.html": write_select,
}


class FieldRenderer(DjangoTemplates):
    """Writes the plain fields itself."""

    def render(self, template_name: str, context: dict[str, Any], request: Any = None) -> str:
        if write := WRITERS.get(template_name):
            return write(context["widget"])
        return super().render(template_name, context, request)
