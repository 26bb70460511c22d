# Short names for the commands that CI and the documentation use. `just --list` shows them.

# The tests; all of them with SPDL_TEST_ALL=1.
test:
    cargo test

# The tests of one crate, or those of them whose name has a word: `just t control order`.
t crate *filter:
    cargo test --package spdl-{{crate}} -- {{filter}}

# The Python package's tests, or those that `FILTER` selects, on an editable install.
py *arguments:
    tests/python/run {{arguments}}

# Faults in the simulator: seeds that were never played before, unless `--from` names the first.
sim *arguments="--seeds 5000":
    tests/sim/run {{arguments}}

# Formatting, links, licences and lints.
lint:
    .ci/run format docs workflow deny core features clippy

# The slab and the JPEG decoder under valgrind.
memcheck:
    .ci/run memcheck

# The crates that touch pixels on 64-bit Arm, emulated.
arm64 *arguments:
    tests/arm64/run {{arguments}}

# One benchmark of benches/README.md.
bench name="load" *arguments:
    cargo bench --bench {{name}} -- {{arguments}}

# All that a change has to pass, or the steps that are named.
ci *steps:
    .ci/run {{steps}}
