//! One epoch of the shuffled stream: the spans and windows of its lanes. The order of a lane is built on its first use.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use super::{
    deal::Deal,
    permutation::{Key, Purpose},
};

/// The order of one epoch. It holds 12 bytes per span once every lane has been used.
pub(super) struct EpochOrder {
    pub(super) epoch: u64,
    pub(super) deal: Arc<Deal>,
    lanes: Box<[OnceLock<LaneOrder>]>,
}

impl EpochOrder {
    pub(super) fn new(epoch: u64, deal: Arc<Deal>) -> Self {
        let lanes = (0..deal.lanes()).map(|_| OnceLock::new()).collect();
        Self { epoch, deal, lanes }
    }

    /// Returns the dealt block that holds the sample at `lane_offset` of `lane`, and the sample's place on the deal's
    /// line.
    #[inline]
    pub(super) fn line_place(&self, seed: u64, window: u64, lane: u32, lane_offset: u64) -> (usize, u64) {
        self.lanes[lane as usize]
            .get_or_init(|| LaneOrder::new(&self.deal, seed, self.epoch, lane, window))
            .line_place(&self.deal, lane_offset)
    }

    /// Returns the offset of `lane` from which on the block of the sample at `lane_offset` is certainly no longer in
    /// use. The order of the lane must have been used.
    pub(super) fn in_use_until(&self, lane: u32, lane_offset: u64) -> u64 {
        self.lanes[lane as usize].get().expect("the sample was looked up").in_use_until(lane_offset)
    }
}

/// The order of one lane in one epoch.
struct LaneOrder {
    /// First place of the lane on the deal's line.
    first: u64,
    /// Where each span starts in the lane, in this epoch's order of spans.
    starts: Box<[u64]>,
    /// The dealt block that each span belongs to.
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

    /// Returns the place of a sample among the lane's spans, and the number of the span that holds it.
    #[inline]
    fn span_place(&self, lane_offset: u64) -> (usize, u64) {
        let [straight, brick] = &self.windows;
        let place = straight.permute(brick.permute(lane_offset));
        (self.starts.partition_point(|&start| start <= place) - 1, place)
    }

    fn in_use_until(&self, lane_offset: u64) -> u64 {
        let [straight, brick] = &self.windows;
        let (span, _) = self.span_place(lane_offset);
        let end = self.starts.get(span + 1).copied().unwrap_or(straight.len);
        brick.window_of(straight.window_of(end - 1).1.end - 1).1.end
    }

    #[inline]
    fn line_place(&self, deal: &Deal, lane_offset: u64) -> (usize, u64) {
        let (span, place) = self.span_place(lane_offset);
        let dealt = self.dealt[span] as usize;
        (dealt, deal.block_range(dealt).start.max(self.first) + (place - self.starts[span]))
    }
}

/// One pass of windows over a lane of `len` samples: [0, start), [start, start + size), ...; the ends of the lane cut
/// the first and the last window short.
struct Windows {
    key: Key,
    start: u64,
    size: u64,
    len: u64,
}

impl Windows {
    /// Returns the windows of the first pass, and those of the second pass, which are shifted by half a window. If a
    /// window holds the whole lane, each pass has one window and there are no borders to soften.
    fn both(start_key: Key, window_key: Key, size: u64, len: u64) -> [Self; 2] {
        let size = size.min(len);
        let start = if size == len { 0 } else { start_key.below(size) };
        let shifted = if size == len { 0 } else { (start + size / 2) % size };
        [(0, start), (1, shifted)].map(|(pass, start)| Self { key: window_key.with(pass), start, size, len })
    }

    /// Returns the number and the offsets of the window that holds `offset`.
    #[inline]
    fn window_of(&self, offset: u64) -> (u64, Range<u64>) {
        if offset < self.start {
            return (0, 0..self.start);
        }
        let window = (offset - self.start) / self.size;
        let first = self.start + window * self.size;
        (window + 1, first..self.len.min(first + self.size))
    }

    #[inline]
    fn permute(&self, offset: u64) -> u64 {
        let (window, Range { start, end }) = self.window_of(offset);
        start + self.key.with(window).permute(end - start, offset - start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 100;
    const LEN: u64 = 10_050;

    fn windows(seed: u64, size: u64, len: u64) -> [Windows; 2] {
        Windows::both(Key::new(seed, Purpose::WindowStart), Key::new(seed, Purpose::Window), size, len)
    }

    #[test]
    fn each_pass_permutes_the_lane_and_moves_nothing_out_of_its_window() {
        for (seed, size, len) in [(1, 100, 10_050), (2, 7, 50), (3, 1, 9), (4, 8, 8), (5, 99, 100), (6, 50, 3)] {
            for pass in windows(seed, size, len) {
                let mut places: Vec<u64> = (0..len).map(|offset| pass.permute(offset)).collect();
                assert!(places.iter().zip(0..).all(|(place, offset)| place.abs_diff(offset) < size));
                places.sort_unstable();
                assert!(places.into_iter().eq(0..len));
            }
        }
    }

    #[test]
    fn the_second_pass_lets_samples_cross_the_borders_of_the_first() {
        let [straight, brick] = windows(1, SIZE, LEN);
        let window = |offset: u64| (offset + SIZE - straight.start) / SIZE;
        let crossed = |place: &dyn Fn(u64) -> u64| (0..LEN).filter(|x| window(*x) != window(place(*x))).count() as u64;
        assert_eq!(crossed(&|x| straight.permute(x)), 0, "one pass alone has hard borders");
        let both = crossed(&|x| straight.permute(brick.permute(x)));
        assert!((LEN * 2 / 5..LEN * 3 / 5).contains(&both), "{both} of {LEN} cross, about half should");
        let farthest = (0..LEN).map(|x| straight.permute(brick.permute(x)).abs_diff(x)).max().unwrap();
        assert!(farthest <= SIZE * 3 / 2, "{farthest}");
    }

    #[test]
    fn a_window_of_the_whole_lane_is_one_window() {
        for size in [50, 51, u64::MAX] {
            let [straight, brick] = windows(9, size, 50);
            assert_eq!((straight.start, straight.size, brick.start, brick.size), (0, 50, 0, 50));
        }
    }
}
