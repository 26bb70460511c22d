//! How the pool and its children talk: messages over a socket that keeps their borders, and memory that both have mapped.
//!
//! The pool sends [`ChildOrder`]s and writes packets into memory, the child answers with [`ChildReply`]s and writes frames into other
//! memory. Only one of both works at a time: after each message that has an answer, its sender waits. The pool trusts nothing that a
//! child says.

mod order;
mod reply;
mod socket;

pub(crate) use order::{ChildOrder, InputReader, InputWriter, LoadOrder, StartOrder};
pub(crate) use reply::{ChildReply, FailureKind, FoundFrame, MAX_REPLY_FRAMES, NextStep};
pub(crate) use socket::{receive, send};

/// The most bytes of a message.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Reads numbers and bytes from the beginning of a message. Those that are not there are `None`.
struct MessageBytes<'m>(&'m [u8]);

impl<'m> MessageBytes<'m> {
    fn take(&mut self, count: usize) -> Option<&'m [u8]> {
        let taken;
        (taken, self.0) = self.0.split_at_checked(count)?;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// Returns a number of bytes or things.
    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.u64()?).ok()
    }

    /// Returns the value, if the message ends here.
    fn end<T>(self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// Reads what a child answers, as the pool does, and writes it again; `None` if it is no answer. For the fuzzer.
#[doc(hidden)]
#[must_use]
pub fn rewritten_reply(bytes: &[u8]) -> Option<Vec<u8>> {
    ChildReply::decode(bytes).map(|reply| reply.encode())
}
