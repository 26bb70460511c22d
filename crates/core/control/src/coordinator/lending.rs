//! Decides which workers help which homes: helpers lend their spare cores to homes whose ranks wait for CPU. A worker
//! is a helper only if it was started as one. Without helpers, nothing here has an effect.
//!
//! - Every 5 seconds, the needs of the ranks of each home are added up. A home that needs more cores than it has, and
//!   whose ranks wait for them, gets helpers. It keeps them while its ranks wait, and later only those whose cores it
//!   needs.
//! - A helper lends the cores that its own ranks do not need. While their need is not known, it goes on with the homes
//!   that it helps and takes no others.
//! - A home keeps its helpers before it gets others. If there are too few cores, each home gets one helper before any
//!   home gets a second, and the home that lacks most cores is first.

use std::collections::{BTreeMap, BTreeSet};

use crate::{help::HelperList, peers::PeerAddress};
use spdl_types::{
    WorkerId,
    mix::splitmix64,
    mutations::{Mutation, mutated},
};

use super::{ClusterNote, CoordinatorCore, members::WorkerRecord};

/// The time between two choices of helpers, in milliseconds.
const LOOK_MS: u64 = 5_000;
/// The time with a home, in milliseconds, after which a rank's need is known well enough to lend cores. It is short
/// because cores that are lent in vain cost little.
const MEASURED_AFTER_MS: u64 = 6_000;
/// A home gets helpers if it lacks more than the fraction `LENT_FROM` of its cores, and keeps them while it lacks more
/// than `KEPT_FROM`, which is negative: until it has 15 % to spare.
const LENT_FROM: f64 = 0.05;
const KEPT_FROM: f64 = -0.15;
/// The smallest number of cores that is worth a connection.
const LEAST_CORES: f64 = 0.1;
/// Maximum number of helpers of a home, and of homes that a worker helps.
const MAX_HELPERS: usize = 16;
const MAX_HOMES: usize = 4;

/// The helpers of each home, and when they were chosen.
#[derive(Clone, Debug, Default)]
pub struct Lending {
    /// When they were last chosen, by the coordinator's clock; `None` before the first choice.
    pub looked_ms: Option<u64>,
    /// The helpers of each home that has some.
    pub helpers: BTreeMap<WorkerId, Vec<WorkerId>>,
}

type HelperAssignment = BTreeMap<WorkerId, Vec<WorkerId>>;

/// What a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WaitCause {
    Nothing,
    /// For something other than CPU, or for helpers that are too slow.
    Otherwise,
    Cpu,
}

/// The cores that a worker has and needs, and its part in lending.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Load {
    cores: f64,
    /// The cores that its ranks need; `None` if the need of one of them is not known.
    needed: Option<f64>,
    /// What its ranks wait for: the highest value of any rank.
    wait: WaitCause,
    /// Whether it may help.
    is_helper: bool,
    /// Whether it may be helped.
    is_helped: bool,
}

impl CoordinatorCore {
    /// Returns which workers help which homes.
    #[must_use]
    pub const fn lending(&self) -> &Lending {
        &self.lending
    }

    /// Returns the helpers of a worker that has version `known` of the list, if there is another version.
    pub(super) fn helper_news(&mut self, worker: WorkerId, known: u64) -> Option<Box<HelperList>> {
        self.lend_when_due();
        let helpers: Vec<PeerAddress> = self
            .lending
            .helpers
            .get(&worker)
            .into_iter()
            .flatten()
            .filter_map(|helper| Some(PeerAddress { worker: *helper, quic: self.workers.get(helper)?.home.quic }))
            .collect();
        let add = |version, helper: &PeerAddress| splitmix64(version ^ splitmix64(helper.worker.0)).max(1);
        let version = helpers.iter().fold(0, add);
        let is_known = version == known || (mutated(Mutation::OldHelpers) && known != 0);
        (!is_known).then(|| Box::new(HelperList { version, helpers }))
    }

    /// Returns the names of the workers that help this one.
    pub(super) fn helpers_of(&self, worker: WorkerId) -> Vec<String> {
        let names = self.lending.helpers.get(&worker).into_iter().flatten();
        names.filter_map(|helper| Some(self.workers.get(helper)?.home.name.clone())).collect()
    }

    fn lend_when_due(&mut self) {
        if self.lending.looked_ms.is_some_and(|looked_ms| self.now_ms < looked_ms + LOOK_MS) {
            return;
        }
        self.lending.looked_ms = Some(self.now_ms);
        let has_helpers = self.workers.values().any(|worker| worker.help.is_helper);
        let after = if has_helpers { lend(&self.loads(), &self.lending.helpers) } else { HelperAssignment::new() };
        let before = std::mem::replace(&mut self.lending.helpers, after);
        let changed = |id: &WorkerId| before.get(id) != self.lending.helpers.get(id);
        let homes: BTreeSet<WorkerId> = before.keys().chain(self.lending.helpers.keys()).copied().collect();
        for id in homes.into_iter().filter(changed).collect::<Vec<_>>() {
            let Some(worker) = self.workers.get(&id).map(|worker| worker.home.name.clone()) else { continue };
            let helpers = self.helpers_of(id).join(", ");
            self.log(ClusterNote::HelpersChanged { worker, helpers });
        }
    }

    /// Adds up what the ranks of each worker need.
    fn loads(&self) -> BTreeMap<WorkerId, Load> {
        let load = |worker: &WorkerRecord| Load {
            cores: worker.cores,
            needed: Some(0.0),
            wait: WaitCause::Nothing,
            is_helper: worker.help.is_helper
                && (!worker.draining || mutated(Mutation::LendDraining))
                && worker.cores.is_finite(),
            is_helped: worker.help.is_helped,
        };
        let mut loads: BTreeMap<WorkerId, Load> = self.workers.iter().map(|(id, worker)| (*id, load(worker))).collect();
        for session in self.sessions.values() {
            if session.superseded_by.is_some() || session.is_reset {
                continue;
            }
            let diagnoses = self.diagnoses(session);
            let mut found = diagnoses.iter().peekable();
            for (&number, rank) in &session.ranks {
                let diagnosis = found.next_if(|diagnosis| diagnosis.rank.rank == number);
                if !rank.is_alive(self.now_ms, self.config.liveness_ms) {
                    continue;
                }
                let Some(load) = rank.home.and_then(|home| loads.get_mut(&home)) else { continue };
                let is_measured = self.now_ms.saturating_sub(rank.home_since_ms) >= MEASURED_AFTER_MS;
                let diagnosis = diagnosis.filter(|_| is_measured);
                let needed = diagnosis.and_then(|diagnosis| diagnosis.cores_needed());
                load.needed = load.needed.zip(needed).map(|(sum, needed)| sum + needed);
                load.wait = load.wait.max(match diagnosis {
                    Some(diagnosis) if diagnosis.waits_for_cpu() => WaitCause::Cpu,
                    Some(diagnosis) if diagnosis.is_waiting() => WaitCause::Otherwise,
                    _ => WaitCause::Nothing,
                });
            }
        }
        loads
    }
}

/// Chooses the helpers of all homes; `before` are their current helpers.
fn lend(loads: &BTreeMap<WorkerId, Load>, before: &HelperAssignment) -> HelperAssignment {
    let lacks = |id: &WorkerId, load: &Load| {
        let is_helped = before.contains_key(id);
        if !load.is_helped {
            return None;
        }
        let Some(needed) = load.needed else {
            // While its need is not known, a home keeps its helpers. If it has none and a rank waits for CPU without
            // having got a sample, it needs at least twice its cores.
            let first = (load.wait == WaitCause::Cpu).then_some(load.cores.max(LEAST_CORES));
            return if is_helped { Some(f64::INFINITY) } else { first };
        };
        let part = (needed - load.cores) / load.cores.max(LEAST_CORES);
        let is_kept =
            is_helped && (part > KEPT_FROM || load.wait > WaitCause::Nothing || mutated(Mutation::KeepHelpers));
        let is_short = is_kept || part > LENT_FROM && load.wait == WaitCause::Cpu;
        is_short.then(|| (needed - load.cores).max(LEAST_CORES))
    };
    let mut homes: Vec<(WorkerId, f64)> = loads.iter().filter_map(|(id, load)| Some((*id, lacks(id, load)?))).collect();
    homes.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let is_home = |id: &WorkerId| homes.iter().any(|(home, _)| home == id);
    let spare = |load: &Load| load.needed.map_or(0.0, |needed| load.cores - needed);
    let mut lenders: BTreeMap<WorkerId, Lender> = loads
        .iter()
        .filter(|(id, load)| load.is_helper && !is_home(id))
        .map(|(id, load)| (*id, Lender { spare: spare(load), homes: 0, is_known: load.needed.is_some() }))
        .collect();
    let mut helpers = HelperAssignment::new();
    for (home, lacking) in &mut homes {
        for helper in before.get(home).into_iter().flatten() {
            let Some(lender) = lenders.get_mut(helper).filter(|lender| lender.can_go_on()) else { continue };
            // While the home's threads wait for helpers, it seems to need no more cores than it got.
            if *lacking > 0.0 || loads[home].wait > WaitCause::Nothing {
                *lacking -= lender.take(*lacking);
                helpers.entry(*home).or_default().push(*helper);
            }
        }
    }
    // Each home gets one more in each round.
    loop {
        let mut is_lent = false;
        let wants_more = |lacking: f64| lacking.is_finite() && lacking >= LEAST_CORES;
        for (home, lacking) in homes.iter_mut().filter(|(_, lacking)| wants_more(*lacking)) {
            let known = helpers.get(home).map_or(&[][..], Vec::as_slice);
            if known.len() >= MAX_HELPERS {
                continue;
            }
            let free = lenders.iter_mut().filter(|(id, lender)| !known.contains(id) && lender.can_begin());
            let Some((helper, lender)) = free.max_by(|a, b| a.1.spare.total_cmp(&b.1.spare).then(b.0.cmp(a.0))) else {
                continue;
            };
            *lacking -= lender.take(*lacking);
            helpers.entry(*home).or_default().push(*helper);
            is_lent = true;
        }
        if !is_lent {
            return helpers;
        }
    }
}

/// A helper, and the cores that it can still lend.
struct Lender {
    /// Cores that are not needed and not lent.
    spare: f64,
    homes: usize,
    is_known: bool,
}

impl Lender {
    /// Returns whether it can help one more home.
    fn can_begin(&self) -> bool {
        self.may_help_more() && self.spare >= LEAST_CORES
    }

    /// Returns whether it can go on to help a home.
    fn can_go_on(&self) -> bool {
        self.may_help_more() && (self.spare > 0.0 || !self.is_known)
    }

    fn may_help_more(&self) -> bool {
        self.homes < MAX_HOMES || mutated(Mutation::LendToAll)
    }

    /// Lends up to `wanted` cores; returns how many.
    fn take(&mut self, wanted: f64) -> f64 {
        let taken = wanted.clamp(0.0, self.spare.max(0.0));
        self.spare -= taken;
        self.homes += 1;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(cores: f64, needed: f64) -> Load {
        Load {
            cores,
            needed: Some(needed),
            wait: if needed > cores { WaitCause::Cpu } else { WaitCause::Nothing },
            is_helper: true,
            is_helped: true,
        }
    }

    fn lent(loads: &[Load], before: &[(u64, &[u64])]) -> Vec<(u64, Vec<u64>)> {
        let loads = (1..).zip(loads).map(|(id, load)| (WorkerId(id), *load)).collect();
        let list = |helpers: &[u64]| helpers.iter().map(|id| WorkerId(*id)).collect();
        let before = before.iter().map(|(home, helpers)| (WorkerId(*home), list(helpers))).collect();
        let after = lend(&loads, &before);
        after.into_iter().map(|(home, helpers)| (home.0, helpers.iter().map(|id| id.0).collect())).collect()
    }

    #[test]
    fn a_home_gets_as_many_helpers_as_it_lacks_cores_those_with_most_to_spare_first() {
        let loads = [load(0.5, 2.4), load(1.0, 0.0), load(1.5, 0.0), load(1.0, 0.9)];
        assert_eq!(lent(&loads, &[]), [(1, vec![3, 2])]);
        assert_eq!(lent(&[load(0.5, 2.4), load(4.0, 0.0), load(1.0, 0.0)], &[]), [(1, vec![2])]);
    }

    #[test]
    fn who_does_not_wait_or_lacks_little_gets_none_and_who_has_helpers_keeps_them() {
        let calm = Load { wait: WaitCause::Nothing, ..load(1.0, 1.5) };
        assert_eq!(lent(&[calm, load(2.0, 0.0)], &[]), []);
        assert_eq!(lent(&[load(1.0, 1.02), load(2.0, 0.0)], &[]), []);
        assert_eq!(lent(&[calm, load(2.0, 0.0)], &[(1, &[2])]), [(1, vec![2])], "it waits no more because of them");
        let hardly = Load { wait: WaitCause::Nothing, ..load(1.0, 0.9) };
        assert_eq!(lent(&[hardly, load(2.0, 0.0)], &[(1, &[2])]), [(1, vec![2])]);
        let enough = Load { wait: WaitCause::Nothing, ..load(1.0, 0.8) };
        assert_eq!(lent(&[enough, load(2.0, 0.0)], &[(1, &[2])]), []);
        let unknown = Load { needed: None, ..load(1.0, 0.0) };
        assert_eq!(lent(&[unknown, load(2.0, 0.0)], &[(1, &[2])]), [(1, vec![2])]);
        assert_eq!(lent(&[unknown, load(2.0, 0.0)], &[]), []);
        let waiting = Load { wait: WaitCause::Otherwise, ..load(1.0, 1.2) };
        let three = [waiting, load(1.0, 0.0), load(1.0, 0.0)];
        assert_eq!(lent(&three, &[(1, &[2, 3])]), [(1, vec![2, 3])], "while it waits, it loses none");
        assert_eq!(
            lent(&[Load { wait: WaitCause::Nothing, ..waiting }, three[1], three[2]], &[(1, &[2, 3])]),
            [(1, vec![2])]
        );
        assert_eq!(lent(&three, &[]), [], "cores may not be what it waits for");
        let starving = Load { wait: WaitCause::Cpu, ..unknown };
        assert_eq!(lent(&[starving, load(2.0, 0.0), load(2.0, 0.0)], &[]), [(1, vec![2])], "it gets no sample at all");
    }

    #[test]
    fn a_worker_whose_own_ranks_need_it_or_that_is_no_helper_lends_nothing() {
        assert_eq!(lent(&[load(1.0, 2.0), load(2.0, 1.95)], &[]), []);
        assert_eq!(lent(&[load(1.0, 2.0), load(2.0, 2.5)], &[(1, &[2])]), [], "it lacks cores itself");
        let unknown = Load { needed: None, ..load(2.0, 0.0) };
        assert_eq!(lent(&[load(1.0, 2.0), unknown], &[]), []);
        let other = Load { is_helper: false, ..load(2.0, 0.0) };
        assert_eq!(lent(&[load(1.0, 2.0), other], &[(1, &[2])]), []);
        let alone = Load { is_helped: false, ..load(1.0, 2.0) };
        assert_eq!(lent(&[alone, load(2.0, 0.0)], &[(1, &[2])]), []);
    }

    #[test]
    fn where_cores_are_short_each_home_gets_one_before_one_gets_two() {
        let loads = [load(1.0, 4.0), load(1.0, 3.0), load(1.0, 0.0), load(1.2, 0.0)];
        assert_eq!(lent(&loads, &[]), [(1, vec![4]), (2, vec![3])]);
        let many: Vec<Load> = (0..6).map(|_| load(1.0, 1.5)).chain([load(8.0, 0.0)]).collect();
        let helped = lent(&many, &[]);
        assert_eq!(helped.len(), MAX_HOMES, "one worker helps a few: {helped:?}");
    }

    #[test]
    fn choosing_again_changes_nothing() {
        let loads = [load(1.0, 3.0), load(0.5, 2.0), load(2.0, 0.5), load(1.0, 0.0), load(1.0, 0.4), load(3.0, 0.0)];
        let first = lent(&loads, &[]);
        let before: Vec<(u64, &[u64])> = first.iter().map(|(home, helpers)| (*home, &helpers[..])).collect();
        assert_eq!(lent(&loads, &before), first);
    }
}
