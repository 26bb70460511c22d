//! The keys of `top`.

use std::{
    io::{self, Read},
    thread,
};

use tokio::sync::mpsc;

/// A key that `top` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopKey {
    Quit,
    Help,
    /// Shows all ranks, or those that wait most.
    AllRanks,
    NextSession,
    PreviousSession,
    Up,
    Down,
    PageUp,
    PageDown,
    /// Closes the help.
    Escape,
}

/// The keys and what a terminal sends for them. Longer sequences come before those that they begin with.
const SEQUENCES: [(&[u8], TopKey); 24] = [
    (b"\x1b[Z", TopKey::PreviousSession),
    (b"\x1b[A", TopKey::Up),
    (b"\x1b[B", TopKey::Down),
    (b"\x1b[C", TopKey::NextSession),
    (b"\x1b[D", TopKey::PreviousSession),
    (b"\x1bOA", TopKey::Up),
    (b"\x1bOB", TopKey::Down),
    (b"\x1bOC", TopKey::NextSession),
    (b"\x1bOD", TopKey::PreviousSession),
    (b"\x1b[5~", TopKey::PageUp),
    (b"\x1b[6~", TopKey::PageDown),
    (b"\x1b", TopKey::Escape),
    (b"\t", TopKey::NextSession),
    (b"q", TopKey::Quit),
    (b"Q", TopKey::Quit),
    (b"?", TopKey::Help),
    (b"h", TopKey::Help),
    (b"a", TopKey::AllRanks),
    (b"n", TopKey::NextSession),
    (b"p", TopKey::PreviousSession),
    (b"k", TopKey::Up),
    (b"j", TopKey::Down),
    (b" ", TopKey::PageDown),
    (b"b", TopKey::PageUp),
];

/// Reads the keys of standard input on a thread of its own, which lives as long as the process.
pub(super) fn listen() -> io::Result<mpsc::UnboundedReceiver<TopKey>> {
    let (sender, keys) = mpsc::unbounded_channel();
    let read = move || {
        let mut bytes = [0; 64];
        let mut input = io::stdin().lock();
        while let Ok(length @ 1..) = input.read(&mut bytes) {
            if parse(&bytes[..length]).into_iter().any(|key| sender.send(key).is_err()) {
                return;
            }
        }
    };
    thread::Builder::new().name("keys".to_owned()).spawn(read)?;
    Ok(keys)
}

/// Finds the keys in what a terminal sent at once.
fn parse(mut bytes: &[u8]) -> Vec<TopKey> {
    let mut keys = Vec::new();
    while !bytes.is_empty() {
        let found = SEQUENCES.iter().find(|(sequence, _)| bytes.starts_with(sequence));
        let is_unknown_sequence = bytes.starts_with(b"\x1b[") || bytes.starts_with(b"\x1bO");
        match found {
            Some((_, TopKey::Escape)) if is_unknown_sequence => bytes = after_sequence(bytes),
            Some((sequence, key)) => {
                keys.push(*key);
                bytes = &bytes[sequence.len()..];
            }
            None => bytes = &bytes[1..],
        }
    }
    keys
}

/// Leaves out an escape sequence: it ends with its first letter or `~`.
fn after_sequence(bytes: &[u8]) -> &[u8] {
    let end = bytes[2..].iter().position(|byte| byte.is_ascii_alphabetic() || *byte == b'~');
    end.map_or(&[], |end| &bytes[2 + end + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_whatever_they_come_with() {
        assert_eq!(parse(b"q"), [TopKey::Quit]);
        assert_eq!(
            parse(b"\x1b[A\x1bOB\t\x1b[Z?"),
            [TopKey::Up, TopKey::Down, TopKey::NextSession, TopKey::PreviousSession, TopKey::Help]
        );
        assert_eq!(parse(b"\x1b[6~\x1b[15~x\x1b[1;5Cj"), [TopKey::PageDown, TopKey::Down], "unknown keys do nothing");
        assert_eq!(parse(b"\x1b"), [TopKey::Escape]);
        assert_eq!(parse(b"\x1b["), []);
        assert_eq!(parse(&[0xff, 0x00, b'a']), [TopKey::AllRanks]);
    }
}
