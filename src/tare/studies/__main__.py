"""`python -m tare.studies FILE...`: whether each study can be read at each scale; for a hook before a commit."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tare.base.errors import StudyError
from tare.base.text import say
from tare.studies.load import at_every_scale

_IS_STUDY = re.compile(r"""^["']?study["']?\s*:""", re.MULTILINE)


def main() -> int:
    """Exit code 2 where one is wrong; YAML without the key `study` is another program's."""
    wrong = 0
    for path in map(Path, sys.argv[1:]):
        try:
            if _IS_STUDY.search(path.read_text("utf-8", errors="replace")):
                at_every_scale(path, trust=True)  # nothing of it is run
        except (StudyError, OSError) as error:
            wrong = 2
            say(str(error))
    return wrong


if __name__ == "__main__":
    sys.exit(main())
