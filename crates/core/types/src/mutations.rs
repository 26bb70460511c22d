//! Mutations for mutation testing: bugs that the simulator switches on one at a time and has to find. They exist in
//! builds with debug assertions, where none is active unless the simulator activates it. In a release build [`mutated`]
//! is a constant `false`, and the compiler removes all of them.

/// A mutation of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutation {
    /// The coordinator does not advance a rank's position when a batch is acknowledged.
    ForgetAcknowledged,
    /// The coordinator starts a session one sample after the position that all ranks had acknowledged.
    ResumePlusOne,
    /// The coordinator resumes at the position of the rank that is furthest ahead.
    ResumeAtFurthest,
    /// The coordinator gives a new session the world size of the previous one.
    StaleWorld,
    /// The coordinator answers without making a new session durable.
    ForgetPersist,
    /// The coordinator never considers a worker dead: not when it is silent, has closed, or cannot be reached by a
    /// rank.
    DeadHome,
    /// The coordinator lets any launch supersede a session whose ranks are alive.
    SupersedeLiving,
    /// The coordinator lets ranks of a superseded session continue.
    KeepSuperseded,
    /// The coordinator moves an acknowledged position back when an older heartbeat arrives late.
    TakeBackAcknowledged,
    /// The coordinator does not make bad samples durable.
    ForgetBadSamples,
    /// The coordinator confirms bad samples to a worker although it could not write them.
    BelieveUnwritten,
    /// The coordinator admits ranks while it cannot write, without waiting until it can.
    AdmitUnwritten,
    /// The coordinator relies on its lease for longer than it was granted.
    IgnoreLease,
    /// The coordinator sends a reply that was ready only after its lease had expired.
    AnswerDeposed,
    /// The coordinator takes the leader's key although another coordinator holds it.
    TakeHeldKey,
    /// The state accepts a write of a coordinator that no longer leads.
    WriteDeposed,
    /// The state accepts a write that arrives after later ones.
    WriteLate,
    /// The coordinator mistakes the sessions of another run of the job for those of this one.
    MixRuns,
    /// The coordinator does not make the removal of a job durable.
    ForgetRemoval,
    /// The coordinator does not make durable that a job has failed.
    ForgetVerdict,
    /// The coordinator does not make other stages of a job durable.
    ForgetStages,
    /// The coordinator lets ranks go on in a session whose job has other stages since.
    KeepOutdated,
    /// The coordinator changes a job before the ranks have promised to wait at the position of the change.
    ChangeUnpromised,
    /// The client promises to wait at the position of a change, and goes on.
    BreakPromise,
    /// The client gives its trainer the end of the stream while it waits for a change, which may move the end, and promises to wait for
    /// one after that.
    IgnoreEnd,
    /// The client goes on with the batches that its home made before a change of the job.
    KeepReadAhead,
    /// A source that is used up counts its samples from the last change of the weights on.
    ForgetGiven,
    /// No source is used up any more once the weights have changed.
    ForgetLimits,
    /// The stream goes on past the sample where a source is used up that ends it.
    PassEnd,
    /// The coordinator forgets the redactions of a job when it starts again.
    ForgetRedactions,
    /// A redacted sample is taken as a substitute.
    SubstituteRedacted,
    /// The coordinator's state keeps only a part of one atomic write when the coordinator is killed meanwhile.
    CutWrites,
    /// The client delivers batches that arrive on a link that it has left.
    TrustLeftLink,
    /// The client leaves its home when a link is lost that it had already left.
    BelieveLeftLink,
    /// The client resumes at a new home one step too far.
    ResumeTooFar,
    /// The client frees a slot when it delivers the batch, and not after its last use.
    FreeEarly,
    /// The client forgets the slots of a link that it has left.
    ForgetLeftSlots,
    /// The client rejoins a session that the coordinator forgot as if it were a new launch.
    RejoinAsNew,
    /// The worker fills a slot again before the client freed it.
    ReuseLentSlot,
    /// The worker delivers batches in the order in which they are filled.
    HandOverUnordered,
    /// The worker ends when all steps are planned, and not when all are delivered.
    EndEarly,
    /// The coordinator assumes that a worker with any list of helpers has the latest.
    OldHelpers,
    /// The coordinator lends a worker that drains.
    LendDraining,
    /// The coordinator lends a worker to any number of homes.
    LendToAll,
    /// The coordinator does not take helpers back from a home that no longer needs them.
    KeepHelpers,
    /// The coordinator places ranks on a worker that only helps others.
    PlaceAtHelper,
    /// The home uses the answer of a helper after it has taken the samples back.
    UseLateHelp,
    /// The home misplaces the samples after one that a helper left out.
    MisplaceHelped,
    /// A helper sends wrong columns of a sample, and the home believes it.
    BelieveWrongHelp,
    /// The home uses what a helper has decoded for one rank for the batches of its other ranks, too.
    UseHelpForAllRanks,
    /// The coordinator assumes that a worker with any map of homes has the latest.
    OldMap,
    /// The coordinator lists the homes of a session once, and not again when they have changed.
    OldHomes,
    /// The coordinator adds what one rank has delivered to the receipt of another, too.
    CountForTwoRanks,
    /// A cache returns, for a block that it evicted, the block that took its room.
    ServeEvicted,
    /// A cache evicts blocks that are in use.
    EvictHeld,
    /// A cache takes blocks for which it has no room.
    ExceedCache,
    /// The worker believes a block that came from another worker without comparing its checksum.
    BelieveWrongBlock,
    /// The worker looks for a block of a dataset by its number alone.
    MixDatasets,
    /// Sessions share a decoded sample of another epoch.
    ShareOtherEpoch,
    /// Sessions of jobs with other seeds share decoded samples.
    ShareOtherSeed,
}

impl Mutation {
    /// All mutations.
    pub const ALL: [Self; 60] = [
        Self::ForgetAcknowledged,
        Self::ResumePlusOne,
        Self::ResumeAtFurthest,
        Self::StaleWorld,
        Self::ForgetPersist,
        Self::DeadHome,
        Self::SupersedeLiving,
        Self::KeepSuperseded,
        Self::TakeBackAcknowledged,
        Self::ForgetBadSamples,
        Self::BelieveUnwritten,
        Self::AdmitUnwritten,
        Self::IgnoreLease,
        Self::AnswerDeposed,
        Self::TakeHeldKey,
        Self::WriteDeposed,
        Self::WriteLate,
        Self::MixRuns,
        Self::ForgetRemoval,
        Self::ForgetVerdict,
        Self::ForgetStages,
        Self::KeepOutdated,
        Self::ChangeUnpromised,
        Self::BreakPromise,
        Self::IgnoreEnd,
        Self::KeepReadAhead,
        Self::ForgetGiven,
        Self::ForgetLimits,
        Self::PassEnd,
        Self::ForgetRedactions,
        Self::SubstituteRedacted,
        Self::CutWrites,
        Self::TrustLeftLink,
        Self::BelieveLeftLink,
        Self::ResumeTooFar,
        Self::FreeEarly,
        Self::ForgetLeftSlots,
        Self::RejoinAsNew,
        Self::ReuseLentSlot,
        Self::HandOverUnordered,
        Self::EndEarly,
        Self::OldHelpers,
        Self::LendDraining,
        Self::LendToAll,
        Self::KeepHelpers,
        Self::PlaceAtHelper,
        Self::UseLateHelp,
        Self::MisplaceHelped,
        Self::BelieveWrongHelp,
        Self::UseHelpForAllRanks,
        Self::OldMap,
        Self::OldHomes,
        Self::CountForTwoRanks,
        Self::ServeEvicted,
        Self::EvictHeld,
        Self::ExceedCache,
        Self::BelieveWrongBlock,
        Self::MixDatasets,
        Self::ShareOtherEpoch,
        Self::ShareOtherSeed,
    ];
}

#[cfg(debug_assertions)]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
}

/// Activates a mutation, or none, in the cores that run on this thread.
#[cfg(debug_assertions)]
pub fn activate(bug: Option<Mutation>) {
    ACTIVE.set(bug);
}

/// Whether this mutation is active in the cores on this thread.
#[cfg(debug_assertions)]
#[must_use]
pub fn mutated(bug: Mutation) -> bool {
    ACTIVE.get() == Some(bug)
}

/// Whether this mutation is active: never, without debug assertions.
#[cfg(not(debug_assertions))]
#[inline(always)]
#[must_use]
pub const fn mutated(_: Mutation) -> bool {
    false
}
