"""Without privypurse-lab its commands say what to install."""

import subprocess
import sys

WITHOUT_THE_LAB = """
import importlib.metadata, sys
found = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **of: importlib.metadata.EntryPoints(
    one for one in found(**of) if one.name != "lab"
)
from privypurse.cli._app import run
sys.exit(run({arguments!r}))
"""


def test_commands_of_the_lab_say_what_to_install():
    for arguments in (["audit", "all"], ["audit", "mutants", "--quick"], ["reproduce", "pur"]):
        code = WITHOUT_THE_LAB.format(arguments=arguments)
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert ended.returncode == 2
        assert "pip install privypurse-lab" in ended.stderr
