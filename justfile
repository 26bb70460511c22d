# Short names for the commands that CI and the documentation use. `just --list` shows them.

# All tests.
test:
    .ci/run test

# Faults in the simulator: seeds that were never played before, unless `--from` names the first.
sim *arguments="--seeds 5000":
    tests/sim/run {{arguments}}

# Formatting, links, licences and lints.
lint:
    .ci/run format docs deny core clippy

# The slab and the JPEG decoder under valgrind.
memcheck:
    .ci/run memcheck

# The crates that touch pixels on 64-bit Arm, emulated.
arm64 *arguments:
    tests/arm64/run {{arguments}}

# One benchmark of docs/guide/benchmarks.md.
bench name="load" *arguments:
    cargo bench --bench {{name}} -- {{arguments}}

# All that a change has to pass, or the steps that are named.
ci *steps:
    .ci/run {{steps}}
