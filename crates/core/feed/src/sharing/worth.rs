//! Whether it pays to share decoded samples: compares the time that it saves with the time that it costs.

/// Kept parts that were taken or given up before sharing is judged again.
const WINDOW: u64 = 64;
/// Number of samples after which sharing that did not pay is tried again; it doubles each time that sharing does not
/// pay.
const FIRST_PAUSE: u64 = 2_000;
/// The longest pause, in samples.
const MAX_PAUSE: u64 = 128_000;
/// Taking samples has to save this many times what it costs, as sharing also takes memory from cached blocks.
const LEAST_GAIN: u64 = 2;

/// Measures whether sharing pays, for the feeds of one dataset and seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharingWorth {
    /// Mean times in nanoseconds: to decode a sample, and to decode the rest of one of which some parts were taken.
    decode_ns: u64,
    decode_part_ns: u64,
    /// Samples with kept parts that were neither taken nor given up yet, and the nanoseconds that keeping them took.
    pending: u64,
    pending_ns: u64,
    saved_ns: u64,
    spent_ns: u64,
    /// Samples taken, and kept parts given up unused, in this window.
    ended: u64,
    /// Samples until it is tried again; 0 while samples are shared.
    pause_left: u64,
    next_pause: u64,
}

impl SharingWorth {
    /// Returns whether samples are shared.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.pause_left == 0
    }

    /// Returns the mean time to decode a sample, in nanoseconds; 0 if none was decoded.
    #[must_use]
    pub const fn decode_ns(&self) -> u64 {
        self.decode_ns
    }

    /// Notes that a feed has come to a sample. Returns whether it is shared.
    pub fn begin(&mut self) -> bool {
        self.pause_left = self.pause_left.saturating_sub(1);
        self.is_on()
    }

    /// Notes that a sample was decoded in this time, `in_part` if the rest was taken.
    pub fn note_decoded(&mut self, took_ns: u64, in_part: bool) {
        if took_ns == 0 {
            return;
        }
        let mean = if in_part { &mut self.decode_part_ns } else { &mut self.decode_ns };
        *mean = if *mean == 0 { took_ns } else { *mean - *mean / 16 + took_ns / 16 };
        if in_part {
            self.saved_ns += self.decode_ns.saturating_sub(self.decode_part_ns);
            self.end(1);
        }
    }

    /// Notes that parts of a sample were kept in this time. The time counts once the parts are taken or given up,
    /// because a feed that is ahead keeps many parts before the first of them can save anything.
    pub fn note_kept(&mut self, took_ns: u64) {
        self.pending += 1;
        self.pending_ns += took_ns;
    }

    /// Notes that a sample was taken in this time.
    pub fn note_taken(&mut self, took_ns: u64) {
        self.saved_ns += self.decode_ns;
        self.spent_ns += took_ns;
        self.end(1);
    }

    /// Notes parts that were kept and that no feed took.
    pub fn note_unused(&mut self, parts: u64) {
        if parts > 0 {
            self.end(parts);
        }
    }

    fn end(&mut self, count: u64) {
        let kept_ns = self.pending_ns / self.pending.max(1) * count.min(self.pending);
        self.pending_ns -= kept_ns;
        self.pending = self.pending.saturating_sub(count);
        self.spent_ns += kept_ns;
        self.ended += count;
        if !self.is_on() {
            // It has been judged already.
            (self.saved_ns, self.spent_ns, self.ended) = (0, 0, 0);
        }
        if self.ended < WINDOW {
            return;
        }
        if self.saved_ns < LEAST_GAIN * self.spent_ns {
            self.pause_left = self.next_pause.max(FIRST_PAUSE);
            self.next_pause = (2 * self.pause_left).min(MAX_PAUSE);
        } else {
            self.next_pause = FIRST_PAUSE;
        }
        (self.saved_ns, self.spent_ns, self.ended) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares `samples` samples that take these times to decode, to keep and to take.
    fn share(worth: &mut SharingWorth, samples: u64, [decode_ns, keep_ns, take_ns]: [u64; 3]) {
        for _ in 0..samples {
            worth.note_decoded(decode_ns, false);
            worth.note_kept(keep_ns);
            worth.note_taken(take_ns);
        }
    }

    #[test]
    fn what_is_left_when_sharing_pauses_makes_the_pause_no_longer() {
        let mut worth = SharingWorth::default();
        for _ in 0..10 * WINDOW {
            worth.note_decoded(2_000, false);
            worth.note_kept(1_000);
        }
        for _ in 0..10 * WINDOW {
            worth.note_taken(1_000);
        }
        assert_eq!(worth.pause_left, FIRST_PAUSE);
        assert!((1..FIRST_PAUSE).all(|_| !worth.begin()) && worth.begin());
        share(&mut worth, WINDOW, [2_000, 1_000, 1_000]);
        assert_eq!(worth.pause_left, 2 * FIRST_PAUSE, "only what is judged after it has begun again");
    }

    #[test]
    fn samples_that_take_long_to_decode_are_shared() {
        let mut worth = SharingWorth::default();
        share(&mut worth, 10 * WINDOW, [3_000_000, 30_000, 30_000]);
        assert!(worth.is_on());
    }

    #[test]
    fn what_is_kept_long_before_it_is_taken_counts_when_it_is() {
        let mut worth = SharingWorth::default();
        for _ in 0..20 * WINDOW {
            worth.note_decoded(3_000_000, false);
            worth.note_kept(100_000);
        }
        for _ in 0..19 * WINDOW {
            worth.note_taken(100_000);
            assert!(worth.is_on());
        }
        worth.note_unused(WINDOW);
        assert!(!worth.is_on(), "nothing was saved for what these cost");
    }

    #[test]
    fn samples_that_are_decoded_as_fast_as_copied_are_not_shared_and_tried_again_ever_later() {
        let mut worth = SharingWorth::default();
        for pause in [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE] {
            share(&mut worth, WINDOW, [2_000, 1_000, 1_000]);
            assert!((1..pause).all(|_| !worth.begin()), "a pause of {pause} samples");
            assert!(worth.begin(), "it is tried again");
        }
        share(&mut worth, WINDOW, [50_000, 1_000, 1_000]);
        while worth.is_on() {
            share(&mut worth, 1, [2_000, 1_000, 1_000]);
        }
        assert_eq!(worth.pause_left, FIRST_PAUSE, "where it paid meanwhile, the pause is short again");
    }

    #[test]
    fn samples_that_nobody_takes_are_not_kept() {
        let mut worth = SharingWorth::default();
        for _ in 0..WINDOW {
            worth.note_decoded(3_000_000, false);
            worth.note_kept(30_000);
            worth.note_unused(1);
        }
        assert!(!worth.is_on());
    }

    #[test]
    fn parts_that_save_no_time_are_not_worth_their_copies() {
        let mut worth = SharingWorth::default();
        for _ in 0..WINDOW {
            worth.note_decoded(3_000_000, false);
            worth.note_kept(10_000);
            worth.note_decoded(3_000_000, true);
        }
        assert!(!worth.is_on());
    }
}
