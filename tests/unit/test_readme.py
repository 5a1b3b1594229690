from controlplane import readme


def test_the_readme_shows_the_states_and_settings_as_they_are():
    text = readme.README.read_text()
    assert text == readme.filled(text), "run `python -m controlplane.readme`"
    assert all(f"<!-- generated: {part} -->" in text for part in readme.parts())
