"""What people state about a use of data, because the library cannot know it."""

from typing import Any

from privypurse.core._checks import shown
from privypurse.core._errors import InvalidArgument

NOT_STATED = "not stated"
# The settings of the table [statement] of a schema, with what each answers.
QUESTIONS = {
    "unit": "what one record is, and how many of them one person may have",
    "data_domain": "which data sets could have been there",
    "product": "what is released",
    "intended_use": "what it is for",
    "region": "where the people of the data live, or whose law applies",
    "holder": "who holds the data and answers for the release",
    "holder_type": "of which type the holder is",
    "actors": "who sees what, and who is trusted with what",
    "access": "who may read the records, from their collection on, and what controls that",
    "data": "whether records are added over time",
    "releases": "whether there is one release or many",
    "refresh": "after which time the budget is renewed",
    "post_processing": "what is done with released values before they are published",
    "justification": "why this epsilon",
    "code": "where the code of the release is",
}
CHOICES = {
    "product": ("Machine learning model", "Summary statistics", "Synthetic data", "Dataset"),
    "holder_type": ("Government", "Industry", "Nonprofit"),
    "data": ("static", "growing"),
    "releases": ("one", "many"),
}


def check_answer(key: str, answer: Any) -> str:
    """Return what is stated, or raise InvalidArgument where it is no answer to the question."""
    listed = CHOICES.get(key)
    if not isinstance(answer, str) or not answer.strip() or (listed is not None and answer not in listed):
        expected = "a text" if listed is None else f"one of {', '.join(map(repr, listed))}"
        remedy = f"State {QUESTIONS[key]}, or leave it out"
        raise InvalidArgument(f"expected {expected} as {key} of [statement], got {shown(answer)}. {remedy}.")
    return answer.strip()


def check_statement(answers: Any) -> None:
    """Raise InvalidArgument unless these are answers by the names of their questions."""
    if not isinstance(answers, dict):
        raise InvalidArgument(
            f"expected answers by question; got {shown(answers)}. Pass {{'statement': {{'unit': ...}}}}."
        )
    if unknown := [key for key in answers if key not in QUESTIONS]:
        raise InvalidArgument(f"a statement has no {shown(unknown[0])}. Choose from {', '.join(QUESTIONS)}.")
    for key, answer in answers.items():
        check_answer(key, answer)
