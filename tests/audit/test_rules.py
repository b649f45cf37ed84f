"""Each rule on triplets made for it, and on those that it must leave alone."""

from pathlib import Path

from triptych.audit.rules import COPIES, RULES, find_by_rules
from triptych.triplets import Triplet, TripletTable, read_benchmark


def rules_of(*triplets: Triplet) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in find_by_rules(TripletTable.from_triplets(triplets)):
        found.setdefault(finding.triplet_id, []).append(finding.rule)
    return found


def test_a_good_triplet_has_no_finding() -> None:
    assert rules_of(Triplet("t", "a", ("is red", "has long sleeves"), "b")) == {}


def test_what_a_triplet_says_by_itself() -> None:
    found = rules_of(
        Triplet("blank", "a", ("is red", " . "), "b"),
        Triplet("none", "a", ("", "..."), "c"),
        Triplet("one", "a", ("Red!",), "d"),
        Triplet("twice", "a", ("is blue", "Is  blue."), "e"),
        Triplet("same", "f", ("is longer now",), "f"),
        Triplet("lost", "a", ("is longer still",), None),
    )
    assert found == {
        "blank": ["blank_caption"],
        "none": ["no_text"],
        "one": ["one_word"],
        "twice": ["repeated_caption"],
        "same": ["same_picture"],
        "lost": ["no_target"],
    }


def test_contradictory_twins() -> None:
    found = rules_of(
        Triplet("1", "a", ("is red",), "b"),
        Triplet("2", "a", ("is red",), "c"),
        Triplet("3", "d", ("is darker",), "e"),
        Triplet("4", "e", ("is darker",), "d"),
        Triplet("5", "e", ("is lighter",), "d"),
    )
    assert found == {
        "1": ["contradictory_target"],
        "2": ["contradictory_target"],
        "3": ["contradictory_text"],
        "4": ["contradictory_text"],
    }


def test_a_repeated_triplet_names_the_first() -> None:
    rows = [Triplet(name, "a", ("is red",), "b") for name in ("x", "y", "z")]
    found = find_by_rules(TripletTable.from_triplets(rows))
    assert [(finding.triplet_id, finding.detail) for finding in found] == [
        ("y", "first as x"),
        ("z", "first as x"),
    ]


def test_a_text_is_copied_from_a_number_of_different_pairs_on() -> None:
    def copies(count: int) -> set[str]:
        rows = [Triplet(str(n), f"r{n}", ("is nicer",), f"t{n}") for n in range(count)]
        return {rule for rules in rules_of(*rows).values() for rule in rules}

    assert copies(COPIES - 1) == set()
    assert copies(COPIES) == {"copied_text"}


def test_findings_come_in_the_order_of_the_triplets_and_say_what_was_found() -> None:
    found = find_by_rules(
        TripletTable.from_triplets([Triplet("z", "a", ("red",), "a"), Triplet("b", "c", ("blue",), "d")])
    )
    assert [finding.triplet_id for finding in found] == ["z", "z", "b"]
    assert found[0].sentence == RULES["same_picture"][2] + ": a"
    assert (found[0].weight, found[0].corner) == ("wrong", "target")


def test_an_empty_table_has_no_findings() -> None:
    assert find_by_rules(TripletTable.from_triplets([])) == []


def test_the_official_fashioniq_captions(shared: Path) -> None:
    train = read_benchmark(shared / "data/fashioniq").train
    found = find_by_rules(train)
    says_nothing = [finding for finding in found if finding.rule == "contradictory_text"]
    assert any("is the same" in finding.detail for finding in says_nothing)
    assert {finding.rule for finding in found} >= {"duplicate", "blank_caption", "contradictory_target"}
