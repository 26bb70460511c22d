//! One epoch of the shuffled stream: its lanes' spans and windows. Built lane by lane as they are asked for.

use std::sync::OnceLock;

use super::{
    deal::Deal,
    permutation::{Key, Purpose},
};

/// The order of one epoch. Holds 12 bytes per span once every lane was asked for.
pub(super) struct EpochOrder {
    pub(super) epoch: u64,
    lanes: Box<[OnceLock<LaneOrder>]>,
}

impl EpochOrder {
    pub(super) fn new(epoch: u64, lanes: u32) -> Self {
        Self { epoch, lanes: (0..lanes).map(|_| OnceLock::new()).collect() }
    }

    /// The place on the deal's line of the sample at `lane_offset` of `lane`, with the dealt block it is in.
    #[inline]
    pub(super) fn line_place(&self, deal: &Deal, seed: u64, window: u64, lane: u32, lane_offset: u64) -> (usize, u64) {
        self.lanes[lane as usize]
            .get_or_init(|| LaneOrder::new(deal, seed, self.epoch, lane, window))
            .line_place(deal, lane_offset)
    }
}

/// One lane in one epoch.
struct LaneOrder {
    /// First place of the lane on the deal's line.
    first: u64,
    /// Where each span starts in the lane, in this epoch's order of spans.
    starts: Box<[u64]>,
    /// The dealt block that each span is of.
    dealt: Box<[u32]>,
    windows: [Windows; 2],
}

impl LaneOrder {
    fn new(deal: &Deal, seed: u64, epoch: u64, lane: u32, window: u64) -> Self {
        let lane_key = |purpose| Key::new(seed, purpose).with(epoch).with(u64::from(lane));
        let (first, end) = (deal.lane_start(lane), deal.lane_start(lane + 1));
        let first_block = deal.block_at(first);
        let spans = (deal.block_at(end - 1) - first_block + 1) as u64;
        let key = lane_key(Purpose::Spans);
        let mut start = 0;
        let (starts, dealt) = (0..spans)
            .map(|place| {
                let block = first_block + key.permute(spans, place) as usize;
                let range = deal.block_range(block);
                let span_start = start;
                start += range.end.min(end) - range.start.max(first);
                (span_start, block as u32)
            })
            .unzip::<_, _, Vec<_>, Vec<_>>();
        assert_eq!(start, end - first, "spans of lane {lane}");
        Self {
            first,
            starts: starts.into(),
            dealt: dealt.into(),
            windows: Windows::both(lane_key(Purpose::WindowStart), lane_key(Purpose::Window), window, end - first),
        }
    }

    #[inline]
    fn line_place(&self, deal: &Deal, lane_offset: u64) -> (usize, u64) {
        let [straight, brick] = &self.windows;
        let place = straight.permute(brick.permute(lane_offset));
        let span = self.starts.partition_point(|&start| start <= place) - 1;
        let dealt = self.dealt[span] as usize;
        (dealt, deal.block_range(dealt).start.max(self.first) + (place - self.starts[span]))
    }
}

/// One pass of windows over a lane of `len` samples: [0, start), [start, start + size), ...; the first and
/// the last are cut by the ends of the lane.
struct Windows {
    key: Key,
    start: u64,
    size: u64,
    len: u64,
}

impl Windows {
    /// The windows, and those shifted by half a window. A window that holds the whole lane is one window, and
    /// has no borders to soften.
    fn both(start_key: Key, window_key: Key, size: u64, len: u64) -> [Self; 2] {
        let size = size.min(len);
        let start = if size == len { 0 } else { start_key.below(size) };
        let shifted = if size == len { 0 } else { (start + size / 2) % size };
        [(0, start), (1, shifted)].map(|(pass, start)| Self { key: window_key.with(pass), start, size, len })
    }

    #[inline]
    fn permute(&self, offset: u64) -> u64 {
        let (window, first, end) = if offset < self.start {
            (0, 0, self.start)
        } else {
            let window = (offset - self.start) / self.size;
            let first = self.start + window * self.size;
            (window + 1, first, self.len.min(first + self.size))
        };
        first + self.key.with(window).permute(end - first, offset - first)
    }
}
