//! The decoding of samples: which samples a rank takes from another one, and what happens to bad ones.

use spdl_feed::{BadLedger, BadSampleKind, Remedy, remedy};
use spdl_job::{BadSamples, layout::entry_flags};
use spdl_order::{Item, ItemKind};
use spdl_types::{BadSample, SampleId};

use super::{
    SimWorker,
    blocks::SimBlocks,
    sharing::{Begun, BegunSample, SimSharing},
};
use crate::{net::ConnId, scenario::JobDataset, slab::SlotEntry, world::World};

impl World {
    /// Decodes samples of a rank. Returns their entries, or `None` if the job fails, and the samples to pass to
    /// [`finish_samples`](Self::finish_samples) once they have been decoded.
    pub(super) fn decode(
        &mut self,
        worker: usize,
        conn: ConnId,
        items: &[Item],
    ) -> (Option<Vec<SlotEntry>>, Vec<BegunSample>) {
        let (may_keep, now_ms) = (!self.dice.percent(5), self.now_us / 1_000);
        let SimWorker { feeds, bad, blocks, sharing, .. } = &mut self.workers[worker];
        let feed = &feeds[&conn];
        let dataset = self.scenario.dataset_of(&feed.session.job);
        let mut begun = Vec::new();
        let taken = sharing.taken();
        let decode_or_take = |item: &Item| {
            let member = feed.member.filter(|_| item.kind != ItemKind::Invalid);
            let begin = member.map(|member| sharing.begin(member, item, may_keep, now_ms));
            if let Some(Begun::Take(columns)) = begin {
                let id = item.located.id.0;
                return Some(SlotEntry { at: item.at, id, flags: item_flags(item), columns: Some(columns) });
            }
            let entry = decode(item, dataset, bad, blocks);
            if let Some(Begun::Decode { is_kept }) = begin {
                let own = entry.filter(|entry| is_kept && entry.id == item.located.id.0);
                begun.push(SimSharing::begun(item, own.and_then(|entry| entry.columns)));
            }
            entry
        };
        let entries = items.iter().map(decode_or_take).collect();
        for _ in taken..sharing.taken() {
            self.coverage.count("sample_taken_from_another_session");
        }
        (entries, begun)
    }

    /// Notes that samples have been decoded. From now on other ranks may take them.
    pub(super) fn finish_samples(&mut self, worker: usize, conn: ConnId, begun: Vec<BegunSample>) {
        let SimWorker { feeds, sharing, .. } = &mut self.workers[worker];
        let Some(member) = feeds.get(&conn).and_then(|feed| feed.member) else { return };
        begun.into_iter().for_each(|begun| sharing.finish(member, begun));
    }

    pub(super) fn count_entry(&mut self, entry: &SlotEntry) {
        for (flag, name) in [
            (entry_flags::SUBSTITUTED, "bad_sample_substituted"),
            (entry_flags::MASKED, "bad_sample_masked"),
            (entry_flags::PADDING, "entry_padded"),
            (entry_flags::INVALID, "entry_invalid"),
        ] {
            if entry.flags & flag != 0 {
                self.coverage.count(name);
            }
        }
    }
}

/// Decodes an entry under the worker's policy for bad samples; returns `None` if the job fails.
fn decode(item: &Item, dataset: &JobDataset, ledger: &mut BadLedger, blocks: &mut SimBlocks) -> Option<SlotEntry> {
    let mut flags = item_flags(item);
    let mut located = item.located;
    let mut id = located.id.0;
    let mut attempts = 0;
    while item.kind != ItemKind::Invalid && dataset.bad.contains(&id) {
        let bad = BadSample {
            job: dataset.job.name.clone(),
            sample: SampleId(id),
            shard: "s".into(),
            key: "k".into(),
            cause: "c".into(),
        };
        let remedy = remedy(dataset.job.bad_samples, &dataset.plan, item.at, attempts);
        if remedy == Remedy::Fail {
            // As in the worker: before the bad sample is recorded.
            return None;
        }
        ledger.record(&dataset.job, dataset.job.dataset_fingerprint, bad, &BadSampleKind::default()).verdict.ok()?;
        match remedy {
            Remedy::Substitute(substitute) => {
                located = substitute;
                id = located.id.0;
                flags |= entry_flags::SUBSTITUTED;
                attempts += 1;
            }
            Remedy::Mask => {
                assert_eq!(dataset.job.bad_samples, BadSamples::Mask, "the job decides what is done");
                flags |= entry_flags::MASKED;
                break;
            }
            other => unreachable!("{other:?} is no remedy for so few bad samples"),
        }
    }
    let has_columns = flags & (entry_flags::INVALID | entry_flags::MASKED) == 0;
    let content = || JobDataset::content(blocks.sample(dataset, &located), dataset.job.seed, item.source_epoch);
    Some(SlotEntry { at: item.at, id, flags, columns: has_columns.then(content) })
}

/// Returns the flags of an entry whose sample decodes.
pub(super) const fn item_flags(item: &Item) -> u32 {
    let flags = match item.kind {
        ItemKind::Sample => 0,
        ItemKind::Padding => entry_flags::PADDING,
        ItemKind::Invalid => entry_flags::INVALID,
    };
    if item.redacted.is_some() { flags | entry_flags::REDACTED } else { flags }
}
