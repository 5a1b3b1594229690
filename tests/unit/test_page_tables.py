"""Tables that CSS turns into cards keep their roles."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.template import Context, Engine, TemplateSyntaxError
from django.template.loader import get_template
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy

ENGINE = Engine(builtins=["controlplane.console.templatetags.tables"])


def render(text, **context):
    return ENGINE.from_string(text).render(Context(context))


def test_a_table_gets_a_role_on_each_of_its_parts():
    html = render(
        '{% table "jobs" label=name|default:"All" %}<thead><tr><th>Job</th></tr></thead>'
        '<tbody>{% for row in rows %}<tr>{% if row %}<th class="whole">{{ row }}</th>{% endif %}<td>1</td></tr>'
        "{% endfor %}</tbody>{% endtable %}",
        rows=["<tr>", ""],
        name="<jobs>",
    )
    assert html == (
        '<div class="scroll"><table class="rows cards jobs" role="table" aria-label="&lt;jobs&gt;">'
        '<thead role="rowgroup"><tr role="row"><th role="columnheader" scope="col">'
        '<button type="button" class="sort">Job</button></th></tr></thead>'
        '<tbody role="rowgroup">'
        '<tr role="row"><th role="rowheader" scope="row" class="whole">&lt;tr&gt;</th><td role="cell">1</td></tr>'
        '<tr role="row"><td role="cell">1</td></tr>'
        "</tbody></table></div>"
    )


def test_a_table_needs_a_label_or_a_caption():
    render('{% table "jobs" %}<caption>Jobs</caption><tbody></tbody>{% endtable %}')
    with pytest.raises(TemplateSyntaxError, match="neither a label nor a caption"):
        render('{% table "jobs" %}<tbody></tbody>{% endtable %}')


def test_no_template_writes_a_table_by_hand():
    templates = Path(get_template("admin/instance/base.html").origin.name).parent
    by_hand = [
        path.name for path in templates.glob("*.html") if re.search(r'<table|role="(row|cell)', path.read_text())
    ]
    assert by_hand == []


def test_no_filter_gets_an_argument_that_may_be_missing():
    """A missing variable is empty, but as an argument of a filter it is an error. `firstof` takes missing ones."""
    templates = Path(get_template("admin/instance/base.html").origin.name).parent
    deep = re.compile(r"\|\w+:\w+\.\w+\.\w+")
    assert [(path.name, found) for path in templates.glob("*.html") for found in deep.findall(path.read_text())] == []


@pytest.mark.parametrize(
    "value",
    [
        "<b>\"'&",
        SafeString("<b>"),
        1234567,
        True,
        1.5,
        None,
        "",
        datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        gettext_lazy("<No>"),
    ],
    ids=["text", "markup", "number", "truth", "fraction", "nothing", "no text", "moment", "words of a language"],
)
@pytest.mark.parametrize("autoescape", ["on", "off"])
def test_what_is_in_a_cell_is_written_as_outside_of_tables(value, autoescape):
    cell = f"{{% autoescape {autoescape} %}}{{{{ value }}}} {{{{ value|default:'<none>' }}}}{{% endautoescape %}}"
    rows = f"<tbody>{{% if 1 %}}{cell}{{% endif %}}</tbody>"
    inside = render(f"{{% table label='x' %}}{rows}{{% endtable %}}", value=value)
    assert f'<tbody role="rowgroup">{render(cell, value=value)}</tbody>' in inside
