//! Sends and receives batches, each on its own stream: a framed `FromHome::Filled`, then the bytes of the batch.

use bytes::Bytes;
use quinn::{Connection, ReadExactError, RecvStream};
use tokio::sync::oneshot;

use super::QuicError;
use crate::{
    frame::{self, FrameError},
    slab::{Slab, SlotRef},
};
use spdl_control::messages::FromHome;

/// A slot that the connection reads from until the bytes are acknowledged.
struct Lent {
    slot: SlotRef,
    used_bytes: usize,
    /// Dropped after the slot; the drop notifies the receiver.
    _returned: oneshot::Sender<()>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.slot[..self.used_bytes]
    }
}

/// Sends a batch on its own stream, directly from the slot: nothing is copied until it is encrypted. Returns when the
/// connection has taken all of it; `returned` is dropped when the connection no longer uses the slot.
///
/// # Errors
/// [`QuicError`].
///
/// Panics if `used_bytes` is more than a slot.
pub async fn send_batch(
    connection: &Connection,
    sequence: u64,
    slot: SlotRef,
    used_bytes: usize,
    returned: oneshot::Sender<()>,
) -> Result<(), QuicError> {
    assert!(used_bytes <= slot.len(), "batch of {used_bytes} bytes in a slot of {}", slot.len());
    let address = connection.remote_address();
    let lost = |error: quinn::WriteError| match error {
        quinn::WriteError::ConnectionLost(error) => QuicError::of(error, address),
        other => QuicError::Protocol { address, problem: format!("it stopped a batch: {other}") },
    };
    let head = FromHome::Filled { sequence, slot: slot.slot(), used_bytes: used_bytes as u64 };
    let mut framed = Vec::new();
    frame::append_frame(&head, &mut framed)?;
    let batch = Bytes::from_owner(Lent { slot, used_bytes, _returned: returned });
    let mut stream = connection.open_uni().await.map_err(|error| QuicError::of(error, address))?;
    stream.write_all_chunks(&mut [framed.into(), batch]).await.map_err(lost)?;
    let _ = stream.finish();
    Ok(())
}

/// Receives a batch into the slot of `slab` that it names, which must be free, and publishes the slot. The slot keeps no
/// more memory than such a batch needs. Returns the batch's sequence number, slot and length.
///
/// Returns [`QuicError::Protocol`] if the peer fills a slot that is not free, or sends more than a slot holds, and
/// other errors if the stream ends.
pub async fn receive_batch(
    stream: &mut RecvStream,
    slab: &Slab,
    connection: &Connection,
) -> Result<(u64, u32, u64), QuicError> {
    let address = connection.remote_address();
    let broken = |problem: String| QuicError::Protocol { address, problem };
    let (sequence, slot, used_bytes) = match frame::read_frame(stream).await? {
        Some(FromHome::Filled { sequence, slot, used_bytes }) => (sequence, slot, used_bytes),
        Some(other) => return Err(broken(format!("a batch started with {other:?}"))),
        None => return Err(FrameError::Cut { message: "batch" }.into()),
    };
    let stride = slab.slot_stride() as u64;
    if used_bytes > stride {
        return Err(broken(format!("batch {sequence} is {used_bytes} bytes, the slot has {stride}")));
    }
    let mut filling =
        slab.try_take(slot).ok_or_else(|| broken(format!("batch {sequence} fills slot {slot}, which is not free")))?;
    stream.read_exact(&mut filling[..used_bytes as usize]).await.map_err(|error| match error {
        ReadExactError::FinishedEarly(_) => FrameError::Cut { message: "batch" }.into(),
        ReadExactError::ReadError(quinn::ReadError::ConnectionLost(error)) => QuicError::of(error, address),
        ReadExactError::ReadError(other) => broken(format!("batch {sequence} was cut: {other}")),
    })?;
    filling.keep(used_bytes as usize);
    filling.publish();
    Ok((sequence, slot, used_bytes))
}
