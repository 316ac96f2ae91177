"""Makes a Rust program to build: `crate.py ROOT LIBRARIES`, one that uses as many small libraries and nothing else.
Run as a program of its own, so that a hanging mount cannot hang the runner."""

import os
import sys

TYPES = 20
PACKAGE = '[package]\nname = "{}"\nversion = "0.1.0"\nedition = "2021"\n\n'
TYPE = """#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct S{n} {{ number: u64, text: String }}
pub fn f{n}() -> S{n} {{ S{n} {{ number: {n}, text: format!("{{}}", {n}) }} }}
"""


def main() -> None:
    root, count = sys.argv[1], int(sys.argv[2])
    names = [f"part{number}" for number in range(count)]
    needs = "".join(f'{name} = {{ path = "{name}" }}\n' for name in names)
    put(f"{root}/Cargo.toml", f"{PACKAGE.format('whole')}[dependencies]\n{needs}\n[workspace]\n")
    calls = "".join(f'    println!("{{:?}}", {name}::all());\n' for name in names)
    put(f"{root}/src/main.rs", f"fn main() {{\n{calls}}}\n")
    for name in names:
        put(f"{root}/{name}/Cargo.toml", PACKAGE.format(name))
        types = "".join(TYPE.format(n=number) for number in range(TYPES))
        numbers = ", ".join(f"f{number}().number" for number in range(TYPES))
        put(f"{root}/{name}/src/lib.rs", f"{types}pub fn all() -> Vec<u64> {{ vec![{numbers}] }}\n")


def put(path: str, text: str) -> None:
    """Writes a file, and makes its directory."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
