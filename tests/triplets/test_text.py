"""Caption cleaning and joining: spec 1.3."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triptych.triplets.text import clean, join_captions, strip_caption


def test_clean_by_hand():
    """Only . ! " ( ) * # : ; ~ go; commas, quotes and hyphens stay."""
    assert clean('A.b!c"d(e)f*g#h:i;j~k') == "a b c d e f g h i j k"
    assert clean("Women's V-neck,  RED?\n") == "women's v-neck, red?"
    assert clean("DÉCOLLETÉ — très 👗") == "décolleté — très 👗"


def test_clean_keeps_fifty_words():
    assert clean(" ".join(map(str, range(60)))) == " ".join(map(str, range(50)))


@given(st.text())
def test_clean_twice_is_clean_once(text):
    assert clean(clean(text)) == clean(text)


def test_strip_caption():
    assert strip_caption(" ,? is shorter, has no sleeves.. ") == "is shorter, has no sleeves"


def test_fixed_joins_in_order():
    assert join_captions(["Is red.", "has Sleeves?"]) == "is red and has sleeves"


@pytest.mark.parametrize("captions", [["is red"], ["", "is red"], ["is red", " .? "], ["!", "is red", "\n"]])
@pytest.mark.parametrize("mode", ["fixed", "random4"])
def test_blank_captions_are_left_out(captions, mode):
    assert join_captions(captions, mode, np.random.default_rng(0)) == "is red"


def test_nothing_but_blanks_is_empty():
    assert join_captions(["", " "]) == join_captions([]) == ""


def test_random4_gives_each_form_a_quarter_of_the_time():
    generator = np.random.default_rng(0)
    counts = Counter(join_captions(["A", "B"], "random4", generator) for _ in range(4000))
    assert set(counts) == {"a and b", "b and a", "a", "b"}
    assert all(900 < count < 1100 for count in counts.values())  # 1000 +- 3.6 standard deviations


def test_a_blank_caption_does_not_shift_later_draws():
    one, two = np.random.default_rng(5), np.random.default_rng(5)
    join_captions(["A", ""], "random4", one)
    join_captions(["A", "B"], "random4", two)
    draws = [[join_captions(["A", "B"], "random4", g) for _ in range(20)] for g in (one, two)]
    assert draws[0] == draws[1]


def test_three_captions():
    """With more than two, B is all but the first."""
    assert join_captions(["a", "b", "c"]) == "a and b and c"
    generator = np.random.default_rng(1)
    seen = {join_captions(["a", "b", "c"], "random4", generator) for _ in range(100)}
    assert seen == {"a and b and c", "b and c and a", "a", "b and c"}


def test_wrong_calls():
    with pytest.raises(ValueError, match="generator"):
        join_captions(["a", "b"], "random4")
    with pytest.raises(ValueError, match="unknown caption mode 'both'"):
        join_captions(["a", "b"], "both")
