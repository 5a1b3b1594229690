"""Tag `{% table "servers" label="Servers" %} … {% endtable %}`: a table that screen readers recognize, also on phones.

On phones, CSS shows rows as cards. Browsers then no longer treat the element as a table unless it has ARIA roles. The
roles are added when a template is compiled. Values are written without Django's localisation, because a page has a
thousand values.
"""

import re
from html import escape
from typing import Any

from django import template
from django.template.base import (
    FilterExpression,
    Node,
    NodeList,
    Parser,
    TextNode,
    Token,
    VariableNode,
    render_value_in_context,
)
from django.utils.safestring import SafeString

register = template.Library()

COLUMN = re.compile(r"(<th(?: [^>]*)?>)([^<{]*[^<{\s][^<{]*)(</th>)")
"""Column header that contains only text. reader.js can sort the rows by such a column."""
TAG = re.compile(r"<(/?thead|tbody|tr|th|td)\b")
LABEL = "label="
ROLES = {"thead": "rowgroup", "tbody": "rowgroup", "tr": "row", "td": "cell"}


class TableNode(Node):
    child_nodelists = ("nodelist",)

    def __init__(self, nodelist: NodeList, classes: str, label: FilterExpression | None) -> None:
        self.nodelist, self.classes, self.label = nodelist, classes, label

    def render(self, context: template.Context) -> str:
        rows = self.nodelist.render(context)
        named = f' aria-label="{escape(str(self.label.resolve(context)))}"' if self.label else ""
        return f'<div class="scroll"><table class="rows cards{self.classes}" role="table"{named}>{rows}</table></div>'


class PlainNode(VariableNode):
    """Variable node that writes text and whole numbers without localisation.

    The checks for language and time zone took more time than the rest of a page.
    """

    def render(self, context: template.Context) -> Any:
        value = self.filter_expression.resolve(context)
        kind = type(value)
        if kind is SafeString:
            return value
        if kind is str and context.autoescape:
            return escape(value)
        return str(value) if kind is int else render_value_in_context(value, context)


def write_plainly(nodelist: NodeList) -> None:
    for node in nodelist.get_nodes_by_type(VariableNode):
        node.__class__ = PlainNode


class PlainPartNode(Node):
    child_nodelists = ("nodelist",)

    def __init__(self, nodelist: NodeList) -> None:
        self.nodelist = nodelist

    def render(self, context: template.Context) -> str:
        return self.nodelist.render(context)


@register.tag
def plain(parser: Parser, token: Token) -> PlainPartNode:
    """Write values without localisation: `{% plain %} … {% endplain %}`."""
    nodelist = parser.parse(("endplain",))
    parser.delete_first_token()
    write_plainly(nodelist)
    return PlainPartNode(nodelist)


@register.simple_tag
def sort_head(heads: Any, column: str, words: str, classes: str = "") -> SafeString:
    """Write a column head that links to the list in this order. Without `heads`, the browser sorts the rows."""
    shown_class = f' class="{classes}"' if classes else ""
    start = f'<th role="columnheader" scope="col"{shown_class}'
    if not heads:
        return SafeString(f'{start}><button type="button" class="sort">{words}</button></th>')
    head = heads[column]
    direction = f' aria-sort="{head.direction}"' if head.direction else ""
    return SafeString(f'{start}{direction}><a href="{escape(head.url)}">{words}</a></th>')


@register.tag
def table(parser: Parser, token: Token) -> TableNode:
    """Write a table with ARIA roles.

    A `th` in the head names a column. A `th` in the body names a row. The arguments are CSS classes. Screen readers
    read `label`, like `{% table "jobs" label="Failed jobs" %}`. Only a table with a caption has no label.
    """
    _, *classes = token.split_contents()
    label = None
    if classes and classes[-1].startswith(LABEL):
        label = parser.compile_filter(classes.pop().removeprefix(LABEL))
    nodelist = parser.parse(("endtable",))
    parser.delete_first_token()
    if label is None and not (nodelist and isinstance(nodelist[0], TextNode) and "<caption>" in nodelist[0].s):
        raise template.TemplateSyntaxError(f"The table of line {token.lineno} has neither a label nor a caption.")
    add_roles(nodelist)
    write_plainly(nodelist)
    return TableNode(nodelist, "".join(f" {name.strip(chr(34))}" for name in classes), label)


def add_roles(nodelist: NodeList) -> None:
    """Add ARIA roles to the text of these nodes, in order."""
    is_head = False

    def add_role(match: re.Match[str]) -> str:
        nonlocal is_head
        tag = match[1]
        if tag.endswith("thead"):
            is_head = tag == "thead"
        if tag == "th":
            return '<th role="columnheader" scope="col"' if is_head else '<th role="rowheader" scope="row"'
        return f'<{tag} role="{ROLES[tag]}"' if tag in ROLES else match[0]

    for node in nodelist.get_nodes_by_type(TextNode):
        if isinstance(node, TextNode):
            if "<thead" in node.s or is_head:
                head, end, body = node.s.partition("</thead>")
                node.s = COLUMN.sub(r'\1<button type="button" class="sort">\2</button>\3', head) + end + body
            node.s = TAG.sub(add_role, node.s)
