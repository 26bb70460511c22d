//! Serves blocks to other workers: from memory, from the disk cache, or, for the blocks that this worker owns, from the
//! store.

use std::{ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;
use spdl_control::peers::{BlockReply, BlockRequest};
use spdl_feed::cache::BlockKey;
use spdl_wire::{frame::FrameError, quic::PeerStream};

use super::{fetcher::Fetcher, hold::BlockBytes, peers::OPENING};

/// Interval at which a worker that is fetching a block reports so to the worker that asked.
const FETCHING_PERIOD: Duration = Duration::from_millis(250);
/// Maximum number of ranges of one request.
const MAX_RANGES: usize = 4096;
/// Maximum bytes of one request.
const MAX_BYTES: u64 = 1 << 30;

/// Bytes of a block, and what keeps them in memory.
type FoundBlock = (Vec<Bytes>, Option<BlockBytes>);

/// Answers a request of another worker for a block.
pub(crate) async fn answer_block(
    fetcher: &Arc<Fetcher>,
    request: BlockRequest,
    mut stream: PeerStream,
) -> Result<(), FrameError> {
    let mut finding = std::pin::pin!(fetcher.find(&request));
    let found = loop {
        tokio::select! {
            found = &mut finding => break found,
            () = tokio::time::sleep(FETCHING_PERIOD) => stream.reply(&BlockReply::Fetching).await?,
        }
    };
    let Some((found, _block)) = found else { return stream.reply(&BlockReply::Missing).await };
    let peers = &fetcher.peers;
    let _permit = peers.sending.acquire().await.expect("the semaphore is never closed");
    let bytes = found.iter().map(|bytes| bytes.len() as u64).sum();
    stream.finish(&BlockReply::Block, found).await?;
    peers.note_sent(bytes);
    Ok(())
}

impl Fetcher {
    /// Returns the bytes that another worker wants of a block, if the block is here or this worker has to fetch it as
    /// its owner.
    async fn find(self: &Arc<Self>, request: &BlockRequest) -> Option<FoundBlock> {
        if !is_possible(request) {
            return None;
        }
        let key = BlockKey { dataset: request.dataset, block: request.block };
        if let Some(found) = self.in_memory(key).and_then(|block| ranges_of(block, &request.wanted)) {
            return Some(found);
        }
        if let Some(found) = self.on_disk(key, request).await {
            return Some(found);
        }
        if !request.is_for_owner {
            return None;
        }
        let place = self.peers.place_of_owner(request.session, key, OPENING).await?;
        let hold = self.prefetch(key, || place)?;
        let block = hold.bytes().await.ok()??;
        ranges_of(block, &request.wanted)
    }

    async fn on_disk(&self, key: BlockKey, request: &BlockRequest) -> Option<FoundBlock> {
        let (disk, parts) = (self.disk.clone()?, request.parts.clone());
        let pieces = tokio::task::spawn_blocking(move || disk.read(&key, &parts)).await.ok()??;
        let bytes = request.wanted.iter().map(|range| pieces.slice(range.clone())).collect::<Option<_>>()?;
        Some((bytes, None))
    }
}

/// Returns these ranges of a block; `None` if its stored bytes were not kept, or some of the ranges are not among them.
fn ranges_of(block: BlockBytes, wanted: &[Range<u64>]) -> Option<FoundBlock> {
    let bytes = wanted.iter().map(|range| block.slice(range.clone())).collect::<Option<_>>()?;
    Some((bytes, Some(block)))
}

/// Returns whether a request is possible: no range ends before it starts, each lies in a part, and all are within
/// bounds.
fn is_possible(BlockRequest { parts, wanted, .. }: &BlockRequest) -> bool {
    let bytes = |ranges: &[Range<u64>]| {
        ranges.iter().try_fold(0_u64, |sum, range| sum.checked_add(range.end.checked_sub(range.start)?))
    };
    let is_bounded =
        |ranges: &[Range<u64>]| ranges.len() <= MAX_RANGES && bytes(ranges).is_some_and(|bytes| bytes <= MAX_BYTES);
    let is_in_parts = |range: &Range<u64>| parts.iter().any(|part| part.start <= range.start && range.end <= part.end);
    is_bounded(parts) && is_bounded(wanted) && wanted.iter().all(is_in_parts)
}

#[cfg(test)]
mod tests {
    use spdl_types::{Fingerprint, SessionId};

    use super::*;

    #[test]
    #[allow(clippy::reversed_empty_ranges, clippy::single_range_in_vec_init)]
    fn a_request_that_cannot_be_meant_is_recognised() {
        let request = |parts: &[Range<u64>], wanted: &[Range<u64>]| BlockRequest {
            session: SessionId(1),
            dataset: Fingerprint(1),
            block: 0,
            parts: parts.to_vec(),
            wanted: wanted.to_vec(),
            is_for_owner: true,
        };
        assert!(is_possible(&request(&[0..10, 20..30], &[20..30, 2..3])));
        assert!(!is_possible(&request(&[0..10, 20..30], &[8..22])), "between parts");
        assert!(!is_possible(&request(&[0..10], &[9..8])));
        assert!(!is_possible(&request(&[0..u64::MAX, 0..u64::MAX], &[])));
        assert!(!is_possible(&request(&[0..10], &vec![0..1; MAX_RANGES + 1])));
    }
}
