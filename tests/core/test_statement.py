"""What people may answer in a statement."""

import pytest

from privypurse import InvalidArgument
from privypurse.core._statement import CHOICES, QUESTIONS, check_answer


def test_answers_are_texts_and_some_are_on_a_list():
    assert CHOICES.keys() <= QUESTIONS.keys()
    assert check_answer("unit", " one patient ") == "one patient"
    assert all(check_answer(key, answer) == answer for key, listed in CHOICES.items() for answer in listed)


@pytest.mark.parametrize(("key", "answer"), [("unit", 3), ("unit", " "), ("data", "dynamic"), ("holder_type", None)])
def test_other_answers_are_refused_with_the_question(key, answer):
    with pytest.raises(
        InvalidArgument, match=rf"as {key} of \[statement\], got .*State {QUESTIONS[key]}, or leave it out"
    ):
        check_answer(key, answer)
