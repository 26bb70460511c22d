//! Bugs on purpose: the simulator switches one on and has to find it. Without the feature `planted`, which only the
//! simulator enables, [`has`] is `false` for the compiler too, and nothing of them is left in the code.

/// A bug that a core can be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bug {
    /// The coordinator does not advance a rank on what it acknowledges.
    ForgetAcknowledged,
    /// The coordinator starts a session one sample after the position that all ranks had acknowledged.
    ResumePlusOne,
    /// The coordinator takes the furthest rank's position for that of all.
    ResumeAtFurthest,
    /// The coordinator gives a new session the world of the one before.
    StaleWorld,
    /// The coordinator answers before, and without, making a new session durable.
    ForgetPersist,
    /// The coordinator takes no worker for dead, whether it is silent, has closed or is out of a rank's reach.
    DeadHome,
    /// The coordinator lets any launch supersede one whose ranks are alive.
    SupersedeLiving,
    /// The coordinator lets ranks of a superseded session go on.
    KeepSuperseded,
    /// The coordinator takes back an older acknowledged position from a beat that was overtaken.
    TakeBackAcknowledged,
    /// The coordinator does not make bad samples durable.
    ForgetBadSamples,
    /// The coordinator tells a worker that it knows of bad samples though they could not be written.
    BelieveUnwritten,
    /// The coordinator takes ranks on as if it could write, and does not wait for it.
    AdmitUnwritten,
    /// The coordinator counts on its lease for longer than it was given it.
    IgnoreLease,
    /// The coordinator gives an answer that took until after its lease.
    AnswerDeposed,
    /// The coordinator takes the leader's key though another has it.
    TakeHeldKey,
    /// The state takes what a coordinator writes that does not lead any more.
    WriteDeposed,
    /// The state takes a write that comes after later ones.
    WriteLate,
    /// The coordinator takes the sessions of another run of the job for those of this one.
    MixRuns,
    /// The coordinator does not make the removal of a job durable.
    ForgetRemoval,
    /// The coordinator does not make it durable that a job has failed.
    ForgetVerdict,
    /// The coordinator's state keeps a part of what is written together when it is killed meanwhile.
    CutWrites,
    /// The client hands over what comes over a link that it has left.
    TrustLeftLink,
    /// The client leaves its home when a link is lost that it had left before.
    BelieveLeftLink,
    /// The client resumes at a new home one step after the one that is next.
    ResumeTooFar,
    /// The client gives a slot back when it hands the batch over.
    FreeEarly,
    /// The client forgets the slots of a link that it has left.
    ForgetLeftSlots,
    /// The client joins a session that the coordinator forgot as if it were a new launch.
    RejoinAsNew,
    /// The worker fills a slot again before it is freed.
    ReuseLentSlot,
    /// The worker hands batches over as they are filled.
    HandOverUnordered,
    /// The worker ends when all steps are planned, and not when all are handed over.
    EndEarly,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 30] = [
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
    ];
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Gives the cores that run on this thread this bug, or none.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether the cores on this thread have this bug.
#[cfg(feature = "planted")]
#[must_use]
pub fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether the cores on this thread have this bug: no.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub const fn has(_: Bug) -> bool {
    false
}
