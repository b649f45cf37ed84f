"""What a data set says of its licence."""

from triptych.triplets.licence import licence_note


def test_nothing_said(tmp_path):
    (tmp_path / "README.md").write_text("# Photos\n\nTaken in summer.\n")
    assert licence_note(tmp_path) == "not stated"


def test_a_licence_file_comes_first(tmp_path):
    (tmp_path / "README.md").write_text("Licence: MIT\n")
    (tmp_path / "LICENSE").write_text("\nCC BY 4.0\nby the makers\n\nLong text\n")
    assert licence_note(tmp_path) == "LICENSE: CC BY 4.0 by the makers"


def test_a_line_of_the_readme(tmp_path):
    (tmp_path / "README.md").write_text("# Data\n\nMade here.\n\nLicense:\nCC0\n\nMore\n")
    assert licence_note(tmp_path) == "README.md: License: CC0"


def test_the_paragraph_below_a_heading(tmp_path):
    (tmp_path / "readme.txt").write_text(
        "# Data\n## Source and licence\n- Photos: ours\n- Texts: yours\n## More\n"
    )
    assert licence_note(tmp_path) == "readme.txt: - Photos: ours - Texts: yours"


def test_long_or_odd_texts_are_cut_not_refused(tmp_path):
    (tmp_path / "LICENCE.txt").write_bytes(b"caf\xe9 " * 1000)
    note = licence_note(tmp_path)
    assert note.startswith("LICENCE.txt: caf")
    assert len(note) < 450
