//! The keys of `top`.

use std::{
    io::{self, Read},
    thread,
};

use tokio::sync::mpsc;

/// A key that `top` knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
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
const SEQUENCES: [(&[u8], Key); 24] = [
    (b"\x1b[Z", Key::PreviousSession),
    (b"\x1b[A", Key::Up),
    (b"\x1b[B", Key::Down),
    (b"\x1b[C", Key::NextSession),
    (b"\x1b[D", Key::PreviousSession),
    (b"\x1bOA", Key::Up),
    (b"\x1bOB", Key::Down),
    (b"\x1bOC", Key::NextSession),
    (b"\x1bOD", Key::PreviousSession),
    (b"\x1b[5~", Key::PageUp),
    (b"\x1b[6~", Key::PageDown),
    (b"\x1b", Key::Escape),
    (b"\t", Key::NextSession),
    (b"q", Key::Quit),
    (b"Q", Key::Quit),
    (b"?", Key::Help),
    (b"h", Key::Help),
    (b"a", Key::AllRanks),
    (b"n", Key::NextSession),
    (b"p", Key::PreviousSession),
    (b"k", Key::Up),
    (b"j", Key::Down),
    (b" ", Key::PageDown),
    (b"b", Key::PageUp),
];

/// Reads the keys of standard input on a thread of its own, which lives as long as the process.
pub(super) fn listen() -> io::Result<mpsc::UnboundedReceiver<Key>> {
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
fn parse(mut bytes: &[u8]) -> Vec<Key> {
    let mut keys = Vec::new();
    while !bytes.is_empty() {
        let found = SEQUENCES.iter().find(|(sequence, _)| bytes.starts_with(sequence));
        let is_unknown_sequence = bytes.starts_with(b"\x1b[") || bytes.starts_with(b"\x1bO");
        match found {
            Some((_, Key::Escape)) if is_unknown_sequence => bytes = after_sequence(bytes),
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
        assert_eq!(parse(b"q"), [Key::Quit]);
        assert_eq!(
            parse(b"\x1b[A\x1bOB\t\x1b[Z?"),
            [Key::Up, Key::Down, Key::NextSession, Key::PreviousSession, Key::Help]
        );
        assert_eq!(parse(b"\x1b[6~\x1b[15~x\x1b[1;5Cj"), [Key::PageDown, Key::Down], "unknown keys do nothing");
        assert_eq!(parse(b"\x1b"), [Key::Escape]);
        assert_eq!(parse(b"\x1b["), []);
        assert_eq!(parse(&[0xff, 0x00, b'a']), [Key::AllRanks]);
    }
}
