//! Decodes the blocks of columnar formats: as many at once as there are cores, each in memory that it reserves, as a picture does.

use std::{
    fmt,
    ops::{Deref, Range},
    sync::Arc,
};

use parking_lot::Mutex;
use spdl_shard::format::{DecodedBlock, FieldValue, NumberRun, OpenError, ShardIndex};
use spdl_store::blocking;
use spdl_types::DType;
use tokio::sync::Semaphore;

use super::journal::{InDecoding, Journal, Suspicion};
use crate::{
    decode::{DecodeMemory, NeverFits},
    fetch::{BlockContent, FetchedBlock},
};

const MIB: u64 = 1 << 20;

/// Limits how many blocks are decoded at once, and in how much memory.
pub(crate) struct BlockDecoding {
    /// One permit for each block that is being decoded, which takes a core.
    cores: Semaphore,
    memory: Arc<DecodeMemory>,
    journal: Arc<Journal>,
    /// The free places in the journal.
    places: Mutex<Vec<usize>>,
}

impl fmt::Debug for BlockDecoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockDecoding").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl BlockDecoding {
    /// Lets `cores` blocks be decoded at once. Their places in the journal follow the places of `cores` threads that
    /// decode samples.
    pub(crate) fn new(cores: usize, memory: Arc<DecodeMemory>, journal: Arc<Journal>) -> Self {
        let places = Mutex::new((cores..2 * cores).collect());
        Self { cores: Semaphore::new(cores), memory, journal, places }
    }

    /// Decodes the records of a block. If that would take too much memory, or the worker may have died of it, the
    /// returned block contains only the reason why it cannot be read.
    pub(crate) async fn decode(
        self: &Arc<Self>,
        block: FetchedBlock,
        index: impl Deref<Target = dyn ShardIndex> + Send + 'static,
    ) -> BlockContent {
        let _core = self.cores.acquire().await.expect("the semaphore is never closed");
        let decoding = self.clone();
        blocking(move || BlockContent::Decoded(decoding.decode_now(&block, &*index))).await
    }

    fn decode_now(&self, block: &FetchedBlock, index: &dyn ShardIndex) -> Arc<dyn DecodedBlock> {
        let FetchedBlock { key, ranges, pieces, only, room_bytes } = block;
        let fetched = |range: Range<u64>| pieces.slice(range);
        let takes = index.decoding(ranges, &fetched);
        let unit = InDecoding::block(*key);
        let suspicion = self.journal.suspicion(unit);
        if let Suspicion::Quarantined(deaths) = suspicion {
            let place = takes.place;
            let problem =
                format!("lies in {place}: the worker died {deaths} times in a row while that was being decoded");
            return Arc::new(UnreadBlock { problem });
        }
        let beside = (pieces.bytes() + takes.bytes).saturating_sub(*room_bytes);
        let permit = self.memory.take(beside).map(|permit| match suspicion {
            Suspicion::Alone => {
                drop(permit);
                self.memory.take_all()
            }
            _ => permit,
        });
        let _permit = match permit {
            Ok(permit) => permit,
            Err(NeverFits { max_bytes }) => {
                let [takes_mib, max_mib] = [beside.div_ceil(MIB), max_bytes / MIB];
                let place = takes.place;
                let problem = format!(
                    "lies in {place}, which takes {takes_mib} MiB to decode; {max_mib} MiB are for decoding (a part of the \
                     memory budget)"
                );
                return Arc::new(UnreadBlock { problem });
            }
        };
        let decoded = {
            let _mark = self.mark(unit);
            index.decode(ranges, &fetched).expect("a columnar format decodes")
        };
        if suspicion == Suspicion::Alone {
            self.journal.clear(unit);
        }
        only.as_ref().map_or_else(|| decoded.clone(), |only| decoded.only(only))
    }
}

/// The mark in the journal of a block that is being decoded.
struct BlockMark<'d> {
    decoding: &'d BlockDecoding,
    place: usize,
}

impl BlockDecoding {
    fn mark(&self, unit: InDecoding) -> BlockMark<'_> {
        let place = self.places.lock().pop().expect("there are as many places as cores");
        self.journal.mark(place, Some(unit));
        BlockMark { decoding: self, place }
    }
}

impl Drop for BlockMark<'_> {
    fn drop(&mut self) {
        self.decoding.journal.mark(self.place, None);
        self.decoding.places.lock().push(self.place);
    }
}

/// A block that cannot be read.
#[derive(Debug)]
struct UnreadBlock {
    /// The reason, in words that follow the name of a field.
    problem: String,
}

impl DecodedBlock for UnreadBlock {
    fn bytes(&self) -> u64 {
        self.problem.len() as u64
    }

    fn only(&self, _records: &[u32]) -> Arc<dyn DecodedBlock> {
        Arc::new(Self { problem: self.problem.clone() })
    }

    fn open(&self, _record: u32, _nth: u32) -> Result<Option<FieldValue>, OpenError> {
        Err(OpenError::Malformed(self.problem.clone()))
    }

    fn number(&self, _record: u32, _nth: u32) -> Option<(DType, &[u8])> {
        None
    }

    fn numbers(&self, _record: u32, _nth: u32) -> Option<NumberRun<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use bytes::Bytes;
    use spdl_feed::cache::BlockKey;
    use spdl_shard::format::{Decoding, FetchedBytes, Field, Record};
    use spdl_types::Fingerprint;

    use super::*;
    use crate::{decode::DecodeLimits, feed::journal::DEATHS, fetch::Pieces};

    const KEY: BlockKey = BlockKey { dataset: Fingerprint(5), block: 3 };

    /// The index of a shard whose blocks take this many bytes to decode. It counts the blocks that are decoded.
    #[derive(Debug)]
    struct Takes(u64, AtomicU64);

    impl ShardIndex for Takes {
        fn bytes(&self) -> &Bytes {
            unreachable!("not asked")
        }

        fn shard_bytes(&self) -> u64 {
            100
        }

        fn record_count(&self) -> u32 {
            1
        }

        fn sample_count(&self) -> u32 {
            1
        }

        fn locate(&self, _sample: u32) -> (u32, u32) {
            (0, 0)
        }

        fn record(&self, _record: u32) -> Record<'_> {
            unreachable!("not asked")
        }

        fn field(&self, _record: &Record<'_>, _nth: u32) -> Field<'_> {
            unreachable!("not asked")
        }

        fn decoding(&self, _ranges: &[Range<u64>], _fetched: &FetchedBytes<'_>) -> Decoding {
            Decoding { bytes: self.0, place: "row group 7".to_owned() }
        }

        fn decode(&self, _ranges: &[Range<u64>], _fetched: &FetchedBytes<'_>) -> Option<Arc<dyn DecodedBlock>> {
            self.1.fetch_add(1, Relaxed);
            Some(Arc::new(UnreadBlock { problem: "was decoded".to_owned() }))
        }
    }

    /// Decodes a block of 10 MiB that has room for 4 MiB and takes `takes` bytes more to decode, in 20 MiB of memory
    /// for decoding. Returns the problem with the block, and how many blocks were decoded.
    fn decoded(takes: u64, journal: &Arc<Journal>) -> (String, u64) {
        let limits = DecodeLimits { max_bytes: 20 * MIB, own_bytes: 20 * MIB, kept_bytes: 0 };
        let memory = Arc::new(DecodeMemory::new(limits, Box::new(|_| ())));
        let decoding = BlockDecoding::new(2, memory, journal.clone());
        let (index, pieces) = (Takes(takes, AtomicU64::new(0)), Pieces::new(vec![(0, vec![0; 10 << 20].into())]));
        let block = FetchedBlock { key: KEY, ranges: Vec::new(), pieces, only: None, room_bytes: 4 * MIB };
        let Err(OpenError::Malformed(problem)) = decoding.decode_now(&block, &index).open(0, 0) else {
            unreachable!("no block has values")
        };
        (problem, index.1.into_inner())
    }

    #[test]
    fn a_block_that_never_fits_is_not_decoded_and_says_why() {
        let journal = Arc::default();
        assert_eq!(decoded(14 * MIB, &journal), ("was decoded".to_owned(), 1));
        let (problem, decoded) = decoded(14 * MIB + 1, &journal);
        assert_eq!(decoded, 0);
        let expected =
            "lies in row group 7, which takes 21 MiB to decode; 20 MiB are for decoding (a part of the memory budget)";
        assert_eq!(problem, expected);
    }

    #[test]
    fn a_block_that_was_there_at_several_deaths_is_not_decoded_again_and_one_that_is_decoded_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Arc::new(Journal::open(&folder.path().join("worker.decoding"), "1 GiB").unwrap());
        // What a killed process leaves.
        let die = || open().mark(0, Some(InDecoding::block(KEY)));
        (1..DEATHS).for_each(|_| die());
        let journal = open();
        assert_eq!(journal.suspicion(InDecoding::block(KEY)), Suspicion::Alone);
        assert_eq!(decoded(MIB, &journal), ("was decoded".to_owned(), 1));
        assert_eq!(journal.suspicion(InDecoding::block(KEY)), Suspicion::None);
        drop(journal);
        (0..DEATHS).for_each(|_| die());
        let (problem, decoded) = decoded(MIB, &open());
        assert_eq!(decoded, 0);
        assert!(problem.contains("row group 7") && problem.contains("died 3 times in a row"), "{problem}");
    }
}
