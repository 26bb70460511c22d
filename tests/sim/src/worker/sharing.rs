//! Decoded samples that the ranks of several sessions on one worker share, by the real `SharingCore`. A model of the worker's
//! `feed/sharing.rs`.

use spdl_feed::{Allowed, Decoded, PartWork, SampleDraw, SampleWork, SharingCore, SharingId};
use spdl_job::{Job, SampleContent};
use spdl_order::{Item, ItemKind};
use spdl_types::SessionId;

/// The time to decode a sample: far longer than to copy it, so that sharing pays.
const DECODE_NS: u64 = 1_000_000;
const COPY_NS: u64 = 1_000;

/// The samples that the ranks of a worker share, each as the digest of its columns.
#[derive(Default)]
pub(super) struct SimSharing(SharingCore<u64, ()>);

/// A rank's part in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimMember(SharingId);

/// A sample that is being decoded, and its columns if others want them.
#[derive(Debug)]
pub(super) struct BegunSample {
    draw: SampleDraw,
    kept: Option<u64>,
}

/// What a rank does about a sample.
pub(super) enum Begun {
    /// It takes the columns that another rank has decoded.
    Take(u64),
    /// It decodes the sample, and keeps it for others or not.
    Decode { is_kept: bool },
}

fn draw(item: &Item) -> SampleDraw {
    SampleDraw { epoch: item.source_epoch, id: item.located.id }
}

impl SimSharing {
    pub(super) fn join(&mut self, session: SessionId, job: &Job, now_ms: u64) -> SimMember {
        let SampleContent { source, parts } = job.sample_content();
        SimMember(self.0.join(session, source, parts.into_iter().map(|part| part.fingerprint).collect(), now_ms))
    }

    pub(super) fn leave(&mut self, SimMember(id): SimMember) {
        drop(self.0.leave(id));
    }

    /// Announces the samples of a batch if there is another session that may want them.
    pub(super) fn announce(&mut self, SimMember(id): SimMember, items: &[Item]) {
        if self.0.is_met(id) {
            let decoded = items.iter().filter(|item| item.kind != ItemKind::Invalid);
            self.0.announce(id, decoded.map(draw));
        }
    }

    /// Handles a rank that has come to a sample.
    pub(super) fn begin(&mut self, SimMember(id): SimMember, item: &Item, may_keep: bool, now_ms: u64) -> Begun {
        let draw = draw(item);
        match self.0.begin(id, draw, Allowed { may_wait: false, may_keep }, now_ms) {
            SampleWork::Take(columns) => {
                drop(self.0.taken(id, draw, COPY_NS));
                Begun::Take(columns[0])
            }
            SampleWork::Decode(work) => Begun::Decode { is_kept: work == [PartWork::DecodeAndKeep] },
            SampleWork::Wait => unreachable!("it may not wait"),
        }
    }

    /// Returns a sample that was begun, with its columns if it decoded and others want it.
    pub(super) fn begun(item: &Item, kept: Option<u64>) -> BegunSample {
        BegunSample { draw: draw(item), kept }
    }

    /// Handles a rank that is done with a sample.
    pub(super) fn finish(&mut self, SimMember(id): SimMember, BegunSample { draw, kept }: BegunSample) {
        let decoded = Decoded { took_ns: DECODE_NS, in_part: false, keep_ns: COPY_NS };
        drop(self.0.finish(id, draw, kept.map(|columns| (0, columns)), decoded));
    }

    /// Keeps the columns that a helper has decoded, if others want them.
    pub(super) fn offer(&mut self, member: SimMember, item: &Item, columns: u64, now_ms: u64) {
        let wanted = !self.0.wanted_parts(member.0, draw(item), now_ms).is_empty();
        self.finish(member, BegunSample { draw: draw(item), kept: wanted.then_some(columns) });
    }

    /// Drops the columns that no rank takes; all columns if memory is short.
    pub(super) fn sweep(&mut self, now_ms: u64, is_short: bool) {
        drop(if is_short { self.0.release_all() } else { self.0.sweep(now_ms) });
    }

    pub(super) const fn taken(&self) -> u64 {
        self.0.counts().taken
    }
}
