"""Damage files of every format, and read them in a child process with little memory and time.

A file is read, or refused with a sentence. The child may crash: GDAL's drivers are C and C++ code, and a worker runs
them in child processes for this reason. No other exception may come out.
"""

from __future__ import annotations

import json
import random
import select
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[4]
MAX_SECONDS: Final = 60.0
"""For one file. Most take some milliseconds; a busy machine may need much longer."""
MAX_BITS: Final = 16


class RawError(AssertionError):
    """Reading a damaged file raised an exception that is not for users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """An undamaged dataset of one driver, and how it is read."""

    driver: str
    folder: Path
    name: str
    kind: str
    params: dict[str, Any] = field(default_factory=dict)

    def files(self) -> list[Path]:
        """Return its files, in a fixed order."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file())


def damage(data: bytes, chance: random.Random) -> bytes:
    """Cut a file, flip some of its bits, or overwrite a part of it."""
    if not data:
        return data
    position = chance.randrange(len(data))
    match chance.choice(["cut", "flip", "flip", "head", "fill", "repeat"]):
        case "cut":
            return data[:position]
        case "flip":
            positions = [chance.randrange(len(data)) for _ in range(chance.randint(1, MAX_BITS))]
        case "head":
            positions = [chance.randrange(min(len(data), 512)) for _ in range(chance.randint(1, MAX_BITS))]
        case "fill":
            length = chance.choice([1, 2, 4, 8, 64])
            return (
                data[:position]
                + chance.choice([b"\0", b"\xff", b"\x7f"]) * length
                + data[position + length :]
            )
        case _:
            return data[:position] + data[position : position + chance.randint(1, 64)] * 2 + data[position:]
    damaged = bytearray(data)
    for position in positions:
        damaged[position] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def make_damaged(original: Original, target: Path, seed: int) -> None:
    """Copy a dataset with one of its files damaged. The same seed makes the same damage."""
    chance = random.Random(f"{original.driver} {original.name} {seed}")
    victim = chance.choice(original.files())
    for file in original.files():
        copy = target / file.relative_to(original.folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        data = file.read_bytes()
        copy.write_bytes(damage(data, chance) if file == victim else data)


class Child:
    """A process that reads files for us. It is started again after a crash."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def read(self, task: dict[str, Any]) -> str:
        """Return what came of reading a file: read, refused, crashed or hung; raise RawError for anything else."""
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            self.stop()
            return "crashed"
        ready, _, _ = select.select([process.stdout], [], [], MAX_SECONDS)
        if not ready:
            self.stop()
            return "hung"
        line = process.stdout.readline()
        if not line:
            self.stop()
            return "crashed"
        answer = json.loads(line)
        if answer["outcome"] == "raised":
            raise RawError(answer["text"])
        return str(answer["outcome"])

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        if self._process is None:
            command = [sys.executable, "-m", "tests.unit.geo.formats.fuzz_child"]
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        return self._process


def originals(folder: Path) -> Iterator[Original]:
    """Make the samples of all formats below a folder."""
    from tests.unit.geo.formats import raster_samples, vector_samples

    kinds: dict[str, list[Any]] = {"vector": [*vector_samples.SAMPLES], "raster": [*raster_samples.SAMPLES]}
    for kind, samples in kinds.items():
        for number, sample in enumerate(samples):
            place = folder / kind / f"{number}"
            place.mkdir(parents=True)
            sample.make(place / sample.name)
            params = getattr(sample, "params", {})
            yield Original(driver=sample.driver, folder=place, name=sample.name, kind=kind, params=params)


def fuzz(samples: list[Original], seeds: range) -> Counter[str]:
    """Read every sample with the damage of every seed; return how often each outcome was."""
    outcomes: Counter[str] = Counter()
    child = Child()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
        try:
            for seed in seeds:
                for original in samples:
                    target = Path(scratch, "files")
                    make_damaged(original, target, seed)
                    task = {
                        "kind": original.kind,
                        "folder": str(target),
                        "name": original.name,
                        "params": original.params,
                    }
                    try:
                        outcome = child.read(task)
                    except RawError as error:
                        repeat = f"python -m tests.unit.geo.formats.fuzzing {original.driver!r} {original.name} {seed}"
                        raise RawError(
                            f"{original.driver} {original.name}, seed {seed}: {error}\nRepeat: {repeat}"
                        ) from None
                    outcomes[outcome] += 1
                    if outcome in ("crashed", "hung"):
                        outcomes[f"{outcome} {original.driver} {original.name} {seed}"] += 1
                    shutil.rmtree(target)
        finally:
            child.stop()
    return outcomes


def main(arguments: list[str]) -> None:
    """Fuzz: without arguments all samples with ten seeds; else one sample (driver, name) with one seed, or a count."""
    with tempfile.TemporaryDirectory() as folder:
        samples = list(originals(Path(folder)))
        if len(arguments) == 3:
            driver, name, seed = arguments
            samples = [one for one in samples if (one.driver, one.name) == (driver, name)]
            outcomes = fuzz(samples, range(int(seed), int(seed) + 1))
        else:
            outcomes = fuzz(samples, range(int(arguments[0]) if arguments else 10))
    sys.stdout.write(json.dumps(outcomes, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
