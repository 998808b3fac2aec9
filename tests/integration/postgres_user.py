"""A process that uses the embedded PostgreSQL and does as it is told: start, stop. At the end of its input it ends.

    python postgres_user.py DATA_DIR [UID]

It answers each word with one line of JSON. DATA_DIR `-` is the default one.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - what is imported late could not be read as another user
import json
import os
import sys
from pathlib import Path

from dagmaster.errors import EmbeddedPostgresUnavailable
from dagmaster.store.embedded.server import EmbeddedPostgres


def main() -> None:
    if len(sys.argv) > 2:
        os.setgroups([])
        os.setgid(int(sys.argv[2]))
        os.setuid(int(sys.argv[2]))
    embedded = EmbeddedPostgres(None if sys.argv[1] == "-" else Path(sys.argv[1]))
    for line in sys.stdin:
        answer = ""
        try:
            if line.strip() == "start":
                answer = embedded.start().dsn
            else:
                embedded.stop()
            message = {"said": answer}
        except EmbeddedPostgresUnavailable as error:
            message = {"error": str(error)}
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
