"""A process that registers items into a catalog, as workers do: `python catalog_user.py PLACE NUMBER CALLS SIZE`.

Half of its ids are its own, and half are those of every other such process. It prints how many it made.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.conformance.catalogs import a_collection, an_item, open_catalog


def main() -> None:
    place, number, calls, size = sys.argv[1], *map(int, sys.argv[2:])
    catalog = open_catalog(place)
    catalog.ensure_collection(a_collection("shared"))
    created = 0
    for call in range(calls):
        mine = [an_item(f"own-{number}-{call}-{one}", collection="shared") for one in range(size)]
        common = [an_item(f"common-{call}-{one}", collection="shared") for one in range(size)]
        created += catalog.register([*mine, *common]).created
    sys.stdout.write(f"{created}\n")


if __name__ == "__main__":
    main()
