"""Forms of the pages, as a browser sends them."""

import re


def fields_of(page):
    """Return the fields that a browser would send for the unchanged form."""
    page = page.partition('class="confirm is-form"')[2]
    fields = dict(re.findall(r'<input type="(?:text|number|hidden)" name="(\w+)" value="([^"]*)"', page))
    fields |= dict(re.findall(r'<input type="radio" name="(\w+)" value="([^"]*)"[^>]*checked', page))
    fields |= dict(re.findall(r'<select name="(\w+)".*?<option value="([^"]*)" selected', page, re.DOTALL))
    fields |= dict(re.findall(r'<textarea name="(\w+)"[^>]*>\s*(.*?)</textarea>', page, re.DOTALL))
    return {name: value.replace("&quot;", '"').replace("&#x27;", "'") for name, value in fields.items()}
