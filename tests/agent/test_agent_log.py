"""`Log`: an append-only list shared by everyone who saw part of it."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolspeak.agent.state.state import Log


@given(st.data())
def test_a_tree_of_logs_behaves_like_a_tree_of_lists(data):
    pairs = [(Log(), [])]
    for item in range(data.draw(st.integers(0, 30))):
        log, model = pairs[data.draw(st.integers(0, len(pairs) - 1))]
        pairs.append((log.append(item), [*model, item]))
    for log, model in pairs:
        assert list(log) == model
        assert len(log) == len(model)
        assert bool(log) == bool(model)
        assert list(reversed(log)) == model[::-1]
        assert [log[i] for i in range(-len(model), len(model))] == [model[i] for i in range(-len(model), len(model))]
        assert repr(log) == f"Log({model!r})"


@given(st.lists(st.integers()), st.integers(0, 5), st.slices(12))
def test_a_slice_is_that_of_the_list_and_sees_nothing_later(items, more, part):
    log = Log(items)
    longer = log
    for item in range(more):
        longer = longer.append(item)
    assert log[part] == items[part]
    assert longer[part] == [*items, *range(more)][part]


@given(st.lists(st.integers(0, 2), max_size=4), st.lists(st.integers(0, 2), max_size=4))
def test_logs_are_equal_when_their_items_are(first, second):
    assert (Log(first) == Log(second)) == (first == second)


def test_forks_are_equal_to_what_they_hold_and_do_not_see_each_other():
    trunk = Log([1])
    left_fork, right = trunk.append(2), trunk.append(3)
    assert (list(trunk), list(left_fork), list(right)) == ([1], [1, 2], [1, 3])
    assert trunk.append(2) == left_fork != right


def test_a_log_is_no_list_and_cannot_be_hashed():
    assert Log([1]) != [1]
    with pytest.raises(TypeError, match="unhashable"):
        hash(Log())


@pytest.mark.parametrize("index", [2, -3])
def test_an_index_beyond_its_own_length_is_refused_although_the_items_go_on(index):
    log = Log([1, 2])
    log.append(3)
    with pytest.raises(IndexError):
        log[index]


def test_iterating_while_it_grows_gives_the_log_as_it_was():
    log = Log([1, 2])
    iterator = iter(log)
    first = next(iterator)
    log.append(3)
    assert [first, *iterator] == [1, 2]


def test_the_items_of_what_was_given_are_copied_once():
    items = [1]
    log = Log(items)
    items.append(2)
    assert list(log) == [1]


def test_append_shares_the_items_instead_of_copying_them():
    log, moves = Log(range(100_000)), 0
    items = log._items
    for item in range(1000):
        log = log.append(item)
        moves += log._items is not items
    assert moves == 0
    assert sys.getsizeof(log) < 100
