import re

from controlplane import readme


def test_the_documentation_shows_the_states_and_settings_as_they_are():
    pages = [page.read_text() for page in readme.PAGES]
    for text in pages:
        assert text == readme.fill_page(text), "run `python -m controlplane.readme`"
    assert all(f"<!-- generated: {part} -->" in "".join(pages) for part in readme.generate_parts())


def test_the_pictures_of_the_readme_are_there_in_both_schemes_and_small():
    folder = readme.README.parent / "controlplane/demo/screenshots"
    shown = set(re.findall(r'"controlplane/demo/screenshots/([\w-]+\.png)"', readme.README.read_text()))
    assert shown == {
        f"{name}-{scheme}.png" for name in ("overview", "job", "execution") for scheme in ("light", "dark")
    }
    assert shown == {path.name for path in folder.iterdir()}
    for name in shown:
        picture = (folder / name).read_bytes()
        assert picture.startswith(b"\x89PNG") and len(picture) < 150_000, name
