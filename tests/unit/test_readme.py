import re

from controlplane import readme
from tests.support.pages import PAGES


def test_the_documentation_shows_the_states_and_settings_as_they_are():
    pages = [page.read_text() for page in readme.PAGES]
    for text in pages:
        assert text == readme.fill_page(text), "run `python -m controlplane.readme`"
    assert all(f"<!-- generated: {part} -->" in "".join(pages) for part in readme.generate_parts())


def test_the_list_for_language_models_links_every_page():
    text = readme.LLMS.read_text()
    assert text == readme.list_pages(), "run `python -m controlplane.readme`"
    linked = set(re.findall(r"\]\((.*?)\)", text))
    assert linked == {str(page.relative_to(readme.LLMS.parent)) for page in PAGES if page != readme.README}


def test_the_pictures_are_there_in_both_schemes_and_small():
    folder = readme.README.parent / "docs/images"
    shown = {name for page in PAGES for name in re.findall(r'"[\w./-]*images/([\w-]+\.png)"', page.read_text())}
    assert shown == {
        f"{name}-{scheme}.png" for name in ("overview", "job", "execution") for scheme in ("light", "dark")
    }
    assert shown == {path.name for path in folder.iterdir()}
    for name in shown:
        picture = (folder / name).read_bytes()
        assert picture.startswith(b"\x89PNG") and len(picture) < 150_000, name
