"""Loop over values inside one test, where a test item for each would not fail apart from the
others.
"""

import functools
import inspect


def each(names, values):
    """Run the decorated test once for each value, as `pytest.mark.parametrize` does, but as one
    item.
    """
    names = [names] if isinstance(names, str) else list(names)

    def decorate(test):
        @functools.wraps(test)
        def run(*args, **kwargs):
            for value in values:
                given = dict(zip(names, [value] if len(names) == 1 else value, strict=True))
                try:
                    test(*args, **kwargs, **given)
                except Exception as error:
                    error.add_note(f"with {given}")
                    raise

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in names]
        run.__signature__ = signature.replace(parameters=kept)
        return run

    return decorate
