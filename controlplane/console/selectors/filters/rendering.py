"""Filter fields as HTML.

Django renders a template for each field, option and attribute. That was a tenth of the cost of a list page.
"""

from collections.abc import Callable
from typing import Any

from django.forms.renderers import DjangoTemplates
from django.utils.html import conditional_escape as escape
from django.utils.safestring import SafeString


def write_attributes(attributes: dict[str, Any]) -> str:
    """Return the attributes as HTML. Only the values are escaped; the names are fixed."""
    return "".join(
        f" {name}" if value is True else f' {name}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not False and value is not None
    )


def write_input(widget: dict[str, Any]) -> SafeString:
    written = {"type": widget["type"], "name": widget["name"], "value": widget["value"], **widget["attrs"]}
    return SafeString(f"<input{write_attributes(written)}>")


def write_select(widget: dict[str, Any]) -> SafeString:
    rows = [row for _, group, _ in widget["optgroups"] for row in group]
    options = "".join(
        f"<option{write_attributes({'value': row['value'], **row['attrs']})}>{escape(row['label'])}</option>"
        for row in rows
    )
    return SafeString(f"<select{write_attributes({'name': widget['name'], **widget['attrs']})}>{options}</select>")


WRITERS: dict[str, Callable[[dict[str, Any]], SafeString]] = {
    **{
        f"django/forms/widgets/{name}.html": write_input
        for name in ("text", "number", "hidden", "checkbox", "datetime")
    },
    "django/forms/widgets/select.html": write_select,
}


class FieldRenderer(DjangoTemplates):
    """Renderer that writes plain fields without a template."""

    def render(self, template_name: str, context: dict[str, Any], request: Any = None) -> str:
        if write := WRITERS.get(template_name):
            return write(context["widget"])
        return super().render(template_name, context, request)
