//! Reads the command line of a benchmark.

/// Whether to measure: other harnesses start every target too, and only `cargo bench` passes `--bench`.
pub(crate) fn request_stats() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Returns the number that follows the flag `name`.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{name} {value}")))
}
