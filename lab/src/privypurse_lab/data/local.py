"""Files in the folder ``PRIVYPURSE_DATA``, checked against known checksums."""

import gzip
import hashlib
import os
import pathlib
import zlib
from collections.abc import Mapping

from privypurse.core._checks import at_home
from privypurse.core._errors import UnexpectedFile

FOLDER = "PRIVYPURSE_DATA"

# SHA-256 of the decompressed content of each file.
CHECKSUMS = {
    "adult-a9a.train.svm.gz": "ef89967ad487b189379ef13ff752b69bf3487c07ff50f821c800aa983b6ae819",
    "adult-a9a.test.svm.gz": "d10384b1c1a4df6f8b816278a431ad4391de358815be7d8f705fe91f6b8ac138",
    "adult.train.csv.gz": "bfa781e36598918535d49f2c199ced8e4fa0f78abda99337b00a37df479c166a",
    "adult.test.csv.gz": "7200d2ccc5660b8e61c7f138fca2682a6450f822478dd5f0cdeb707cb055f481",
    "bank.dat.gz": "fe536a257d242b1fb78dd0e753d2c50176ef12a5dd23dfb86402f62127a3b96e",
    "ipums-br.dat.gz": "9bcc80cf279457d62e9025d31a05c3e494e9d6edbb2097ba935eb4926a39884a",
    "kddcup99-10percent.csv.gz": "f8c8267ebcd9c0ed1fd7d6277fe5bfff8732e9b7db8e61b873542b2a534b6f9a",
    "mnist/train-images-idx3-ubyte.gz": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "mnist/train-labels-idx1-ubyte.gz": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "mnist/t10k-images-idx3-ubyte.gz": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "mnist/t10k-labels-idx1-ubyte.gz": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def folder() -> str:
    """Return the folder of the environment variable, or an empty string."""
    return os.environ.get(FOLDER, "")


def find(file: str) -> pathlib.Path | None:
    """Return the path of a file, compressed or not, or None."""
    if not folder():
        return None
    packed = at_home(folder()) / file
    return next((path for path in (packed, packed.with_suffix("")) if path.is_file()), None)


def read(file: str, path: pathlib.Path, checksums: Mapping[str, str]) -> bytes:
    """Return the decompressed content of a file; raise UnexpectedFile if its checksum differs."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise UnexpectedFile(
                f"{path} is damaged: it cannot be decompressed ({error}). Get the file again."
            ) from error
    found = hashlib.sha256(content).hexdigest()
    expected = checksums.get(file, CHECKSUMS[file])
    if found != expected:
        raise UnexpectedFile(
            f"{path} is not the known file: the SHA-256 of its (decompressed) content is {found}, "
            f"should be {expected}. Get the file again; or, to use this one on purpose, pass "
            f"checksums={{{file!r}: {found!r}}}."
        )
    return content
